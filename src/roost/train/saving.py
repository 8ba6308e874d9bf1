"""Saving a trainer's state, and what happens when the disk does not want to."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

from roost.base.errors import TrainingError
from roost.train.timing import SAVE

if TYPE_CHECKING:
    from roost.train.trainer import Trainer


def save(trainer: Trainer, reason: str, *, scheduled: int | None = None) -> bool:
    """Saves now. When the disk fails, says so and goes on with the older checkpoints, except at the end.

    Args:
        trainer: Whose state; it need not have checkpoints.
        reason: Why: start, scheduled, best, held, requested, signal or final.
        scheduled: Which scheduled save this is, counted from 0; None for the others.

    Returns:
        Whether a checkpoint stands.

    Raises:
        TrainingError: The state is not finite, so the newest good checkpoint must stay the newest; or it
            could not be written, and no later save would come.
    """
    if trainer.checkpoints is None:
        return False
    begun = perf_counter()
    trainer.publish("saving")
    trainer.recovery.look_before_save(trainer)
    trainer.stepper.check()
    pending = bool(trainer.agenda.pending)  # then the step's results and held save are still to come
    try:
        for hook in trainer.calls.before_save:
            hook.before_save(trainer)
        path = trainer.checkpoints.save(
            trainer.parts(),
            trainer.progress,
            reason=reason,
            held=trainer.requested("hold") and not pending,
            scheduled=scheduled,
            metrics={} if pending else trainer.results,
            inexact=trainer.inexact,
        )
    except OSError as error:
        if trainer.at_end:
            raise TrainingError(
                f"the last checkpoint could not be written: {error}",
                fix="make space, then `roost continue`; it goes on from the one before",
            ) from error
        print(f"checkpoint not written: {error}; training goes on, older ones are untouched", flush=True)
        return False
    finally:
        trainer.agenda.served()
        trainer.stepper.timing.spent[SAVE] += perf_counter() - begun
    for hook in trainer.calls.save:
        hook.on_save(trainer, path)
    trainer.publish("training")
    return True


def save_at_end(trainer: Trainer) -> None:
    """Saves the state in which the run ends, unless a checkpoint of just that state stands."""
    trainer.recovery.look(trainer)  # also where nobody cuts rows or saves
    newest = trainer.checkpoints.newest if trainer.checkpoints else None
    stands = newest is not None and newest.step == trainer.progress.step and not trainer.agenda.pending
    if trainer.progress.step and not stands:
        save(trainer, "final" if trainer.finished else "signal")
