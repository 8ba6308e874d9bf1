"""Makes a trainer short: the first and the last window of an epoch, the first and the last batch of each
evaluated set, and hooks of the check between those of the run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from roost.train import hooks
from roost.train.data.batches import Batches
from roost.train.data.sequential_batches import SequentialBatches
from roost.train.hook import Hook, Phase
from roost.train.step.stepper import Stepper
from roost.train.trainer import Trainer

TrainerCallback = Callable[[Trainer], None]


def first_and_last_windows(num_batches: int, batches_per_step: int = 1) -> list[range]:
    """Returns the batch indices of an epoch's first and last window; the last may be short. One window only
    if the epoch has only one."""
    last = (num_batches - 1) // batches_per_step * batches_per_step
    windows = [range(min(batches_per_step, num_batches)), range(last, num_batches)]
    return windows[: 2 if last else 1]


def known_length(batches: Batches) -> int | None:
    """Returns the batches of an epoch; None if unknown, as for a stream that is only evaluated."""
    return None if isinstance(batches, SequentialBatches) and batches.num_batches is None else len(batches)


def shorten(trainer: Trainer, *, steps: int, with_hooks: Callable[[Sequence[Hook]], Sequence[Hook]]) -> None:
    """Makes a trainer take only the first and the last window of each epoch, and end after ``steps`` steps
    (see `Trainer.shorten`).

    Args:
        trainer: Assembled, before `fit`.
        steps: Steps to take.
        with_hooks: Returns the hooks to call, given those of the trainer.
    """
    calls, per_window = trainer.calls, trainer.stepper.batches_per_step
    loaders = {
        name: loader.excerpt(
            first_and_last_windows(known_length(loader) or 2, per_window if name == "train" else 1)
        )
        for name, loader in trainer.loaders.items()
    }
    for averaging in calls.of_kind(hooks.Averaging):
        averaging.every, averaging.start = 1, 0  # otherwise no average would begin within these few steps
    if (checkpoints := trainer.checkpoints) is not None:
        checkpoints.asynchronous = False  # so that the time of a save is measured where it happens
    trainer.shorten(loaders, steps=steps, hooks=with_hooks(calls.hooks))


@contextmanager
def all_optimizers_due(stepper: Stepper, *, within: int) -> Iterator[None]:
    """Makes each optimizer step at least once every ``within`` steps inside, however rare its steps are."""
    often = {name: optim.every_n_steps for name, optim in stepper.optimizers.items()}
    for optim in stepper.optimizers.values():
        optim.every_n_steps = min(optim.every_n_steps, within)
    try:
        yield
    finally:
        for name, optim in stepper.optimizers.items():
            optim.every_n_steps = often[name]


class CallbackHook(Hook):
    """Calls functions at one position among the hooks of a trainer.

    Args:
        number: Makes its name unique.
        phase: Its phase; it is placed before or after all other hooks of that phase.
        start, before, step, stop: Called in `on_start`, `before_step`, `on_step`, and in `on_stop` of a run
            that has finished.
    """

    def __init__(
        self,
        number: int,
        phase: Phase,
        *,
        start: TrainerCallback | None = None,
        before: TrainerCallback | None = None,
        step: TrainerCallback | None = None,
        stop: TrainerCallback | None = None,
    ) -> None:
        self._number, self.phase = number, phase
        self._start, self._before, self._step, self._stop = start, before, step, stop

    @property
    def name(self) -> str:
        return f"check {self._number}"

    def on_start(self, trainer: Trainer) -> None:
        if self._start:
            self._start(trainer)

    def before_step(self, trainer: Trainer) -> None:
        if self._before:
            self._before(trainer)

    def on_step(self, trainer: Trainer) -> None:
        if self._step:
            self._step(trainer)

    def on_stop(self, trainer: Trainer, reason: str) -> None:
        if self._stop and reason == "finished":
            self._stop(trainer)


def without_console(given: Sequence[Hook]) -> list[Hook]:
    """Returns the hooks without the console; pictures are left out because they have a stage of their own."""
    return [
        _NoVisualize() if isinstance(hook, hooks.Visualize) else hook
        for hook in given
        if not isinstance(hook, hooks.Console)
    ]


class _NoVisualize(Hook):
    """Serves requests for a picture, without showing one."""

    phase = Phase.EVAL
    every = ()
    serves = "visualize"

    def on_step(self, trainer: Trainer) -> None:
        pass
