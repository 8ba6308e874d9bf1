"""Saving a trainer's state beside its training, and what happens when the disk does not want to."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from time import perf_counter
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from roost.base.errors import TrainingError
from roost.train.checkpointing.checkpoint_writer import TornCopy, prepare_together
from roost.train.checkpointing.pending_save import FAILURE_WAIT_SECONDS, PendingSave
from roost.train.distributed import sharded_tensors
from roost.train.step.timing import SAVE

if TYPE_CHECKING:
    from roost.train.trainer import Trainer

_ParameterMarks = list[tuple[int, Tensor]]
_LONG_WAIT_SECONDS = 10.0


class CheckpointSaver:
    """The saves of a trainer. A state is copied beside the next forward and backward: what those may change
    at once, parameters, averages and the state of the optimizers meanwhile; whoever changes them waits for
    `copied`. Then it is written behind, and the hooks hear of it at the next look around.

    With several ranks they hear of it before the next save, or at the end: at the same step on each.

    Args:
        trainer: Whose state; it need not have checkpoints.
    """

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self._pending: PendingSave | None = None
        """What is being written."""
        self._first_step: tuple[_ParameterMarks, _ParameterMarks] | None = None
        """Marks of what moves, before and after the forward and backward of the first step."""
        self._may_copy_late: bool | None = False
        """Whether forward and backward are known to leave the parameters as they are; None until a save reads
        what was found."""
        self._waited, self._has_said = 0.0, False

    def begin(self) -> None:
        """Training begins, or goes on: finds out in its first step whether the forward pass changes
        parameters, as an embedding with ``max_norm`` does."""
        self._may_copy_late = False
        checkpoints = self._trainer.checkpoints
        if checkpoints is not None and checkpoints.asynchronous:
            self._trainer.stepper.before_optimizer_step = functools.partial(self._compare_after_forward, self._marks())

    def _compare_after_forward(self, before: _ParameterMarks) -> None:
        self._trainer.stepper.before_optimizer_step = None
        self._first_step, self._may_copy_late = (before, self._marks()), None

    def _marks(self) -> _ParameterMarks:
        """Versions and norms: what changes through ``.data`` has no new version. No sync point."""
        return [(parameter._version, _norm(parameter)) for parameter in self._trained_parameters()]

    def _may_defer(self) -> bool:
        """Whether what moves may be copied late. A sync point the first time."""
        if self._may_copy_late is None and self._first_step is not None:
            self._may_copy_late = _are_unchanged(*self._first_step)
            self._first_step = None
        return bool(self._may_copy_late)

    def _trained_parameters(self) -> list[Tensor]:
        """The parameters that an optimizer moves."""
        optims = self._trainer.stepper.optimizers.values()
        return [parameter for optim in optims for parameter in optim.parameters if parameter.requires_grad]

    # ---- saving -----------------------------------------------------------------------------------------

    def save(self, reason: str, *, scheduled: int | None = None) -> bool:
        """Saves the state that there is now. When the disk fails, says so and goes on with the older
        checkpoints, except at the end, and where these were removed with their folder.

        Args:
            reason: Why: start, scheduled, best, held, requested, signal or final.
            scheduled: Which scheduled save this is, counted from 0; None for the others.

        Returns:
            Whether a checkpoint stands, or is on its way; at the start and at the end: whether it stands.

        Raises:
            TrainingError: The state is not finite, so the newest good checkpoint must stay the newest; or it
                could not be written, and no later save would come, or stand.
        """
        trainer, checkpoints = self._trainer, self._trainer.checkpoints
        if checkpoints is None:
            return False
        self._wait_for_previous()
        waits = trainer.at_end or reason == "start"
        defer = [] if waits or not self._may_defer() else list(self._deferrable_tensors())
        begun = perf_counter()
        trainer.publish("saving")
        trainer.recovery.check_before_save(trainer)
        trainer.stepper.check()
        pending = bool(trainer.agenda.pending)  # then the step's results and held save are still to come
        try:
            prepare_together(trainer.ranks, self._call_before_save)
            self._pending = checkpoints.save(
                trainer.parts(),
                trainer.progress,
                reason=reason,
                held=trainer.requested("hold") and not pending,
                scheduled=scheduled,
                metrics={} if pending else trainer.results,
                inexact=trainer.inexact,
                defer=defer,
                prints_error=trainer.ranks.are_several,
            )
        except OSError as error:
            return self._failed(error, is_last=trainer.at_end)
        finally:
            trainer.agenda.drop_save_requests()
            trainer.stepper.timing.spent[SAVE] += perf_counter() - begun
        if waits or not checkpoints.asynchronous:
            return self.finish(is_last=trainer.at_end)
        if defer:
            trainer.stepper.before_optimizer_step = self.wait_until_copied
        trainer.publish("training")
        return True

    def _call_before_save(self) -> None:
        for hook in self._trainer.calls.before_save:
            hook.before_save(self._trainer)

    def save_at_end(self) -> None:
        """Saves the state in which the run ends, unless a checkpoint of just that state stands."""
        trainer = self._trainer
        trainer.recovery.check_steps(trainer)  # also where nobody cuts rows or saves
        self.finish()
        newest = trainer.checkpoints.newest if trainer.checkpoints else None
        stands = newest is not None and newest.step == trainer.progress.step and not trainer.agenda.pending
        if trainer.progress.step and not stands:
            self.save("final" if trainer.finished else "signal")

    def _deferrable_tensors(self) -> Iterator[Tensor]:
        """What only an optimizer or a hook changes. Other parameters, as those of a teacher that follows, the
        project moves when it likes, and through ``.data`` unseen."""
        trainer = self._trainer
        yield from self._trained_parameters()
        for optim in trainer.stepper.optimizers.values():
            for state in optim.optimizer.state.values():
                yield from (value for value in state.values() if isinstance(value, Tensor))
        for average in trainer.averages.values():
            yield from average.state_dict()["weights"].values()

    @property
    def is_writing(self) -> bool:
        """Whether one is being written."""
        return self._pending is not None and not self._pending.is_done

    # ---- while one is being written ---------------------------------------------------------------------

    def wait_until_copied(self) -> None:
        """Waits until the state is copied: before an optimizer moves, a hook runs, or anything else changes
        it. On a GPU nobody waits: what it computes from here on comes after the copy."""
        if self._pending is not None:
            begun = perf_counter()
            self._trainer.stepper.before_optimizer_step = None
            self._pending.wait_until_copied()
            self._trainer.stepper.timing.spent[SAVE] += perf_counter() - begun

    def poll(self) -> None:
        """After a step, before its hooks: tells them of a save that stands by now."""
        if self._pending is None:
            return
        if self._trainer.stepper.before_optimizer_step is not None:  # no optimizer has moved
            self.wait_until_copied()
        if self._pending.is_done and not self._trainer.ranks.are_several:
            self.finish()

    def finish(self, *, is_last: bool = False) -> bool:
        """Waits until what is being written stands, and tells the hooks.

        Args:
            is_last: Whether no later save would come.

        Returns:
            Whether it stands.

        Raises:
            TrainingError: The last one could not be written, or none can be.
            PeerLost: Another rank is gone.
        """
        trainer, saved = self._trainer, self._pending
        if saved is None:
            return False
        begun = perf_counter()
        if not saved.is_done:
            trainer.publish("saving")
        self.wait_until_copied()
        self._pending = None
        try:
            path = saved.wait()
        except OSError as error:
            return self._failed(error, is_last=is_last, is_reported=saved.is_reported)
        except TornCopy as error:
            self._may_copy_late = False
            print(f"checkpoint not written: {error}; it is made again, and copied first", flush=True)
            if not trainer.ranks.are_several:  # else a save begins just now
                trainer.agenda.request("save")
            return False
        finally:
            trainer.stepper.timing.spent[SAVE] += perf_counter() - begun
        for hook in trainer.calls.save:
            hook.on_save(trainer, path)
        trainer.publish("training")
        return True

    def finish_after_failure(self) -> None:
        """The run fails: as `finish`, but what other ranks do not go on with is given up. They may wait in
        the step for this one, which only its end can tell them."""
        trainer = self._trainer
        if trainer.ranks.are_several and trainer.checkpoints is not None:
            self.wait_until_copied()
            if not trainer.checkpoints.wait(FAILURE_WAIT_SECONDS):
                self._pending = None
        self.finish()

    def _wait_for_previous(self) -> None:
        begun = perf_counter()
        self.finish()
        self._waited += perf_counter() - begun
        if self._waited > _LONG_WAIT_SECONDS and not self._has_said:
            self._has_said = True
            print(
                f"training has waited {self._waited:.0f} s for checkpoints that were not written yet when "
                "the next was due; save less often: checkpoint.every",
                flush=True,
            )

    def _failed(self, error: OSError, *, is_last: bool, is_reported: bool = False) -> bool:
        checkpoints = self._trainer.checkpoints
        assert checkpoints is not None
        if not checkpoints.store.folder.exists():
            raise TrainingError(
                "the folder of the checkpoints was removed: nothing that is trained would be kept",
                where=checkpoints.store.folder,
                fix="start it again; there is nothing to go on from",
            ) from error
        if is_last:
            before = checkpoints.newest
            goes_on = f"goes on from step {before.step}" if before else "begins anew: no checkpoint stands"
            raise TrainingError(
                f"the last checkpoint could not be written: {error}",
                fix=f"make space, then `roost continue`; it {goes_on}",
            ) from error
        if not is_reported:
            print(f"checkpoint not written: {error}; training goes on, older ones are untouched", flush=True)
        return False


def _norm(parameter: Tensor) -> Tensor:
    """() of the rows that this rank holds; as sharp for types of 16 bits."""
    own = sharded_tensors.local_shard(parameter.detach())
    norm: Tensor = torch.linalg.vector_norm(own.float() if own.itemsize < 4 else own)
    return norm


def _are_unchanged(before: _ParameterMarks, after: _ParameterMarks) -> bool:
    if len(before) != len(after):
        return False
    return all(a[0] == b[0] and torch.equal(a[1], b[1]) for a, b in zip(before, after, strict=True))
