"""The data of a check: the first and the last window of a training epoch, and the first and the last batch of
each other set."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any

from torch import Tensor

from roost.train.agenda import Agenda
from roost.train.data.batches import Batch, Batches
from roost.train.data.loader import Loader
from roost.train.data.plans.batch_plan import BatchPlan
from roost.train.data.sequential_batches import SequentialBatches
from roost.train.end_condition import EndCondition
from roost.train.hook import CallLists, Hook
from roost.train.hooks.weight_averaging import Averaging
from roost.train.step.stepper import Stepper
from roost.train.trainer import Trainer

_MAX_CHARACTERS = 120


def first_and_last_windows(num_batches: int, batches_per_step: int = 1) -> list[range]:
    """Returns the batch indices of an epoch's first and last window; the last may be short. One window only
    if the epoch has only one."""
    last = (num_batches - 1) // batches_per_step * batches_per_step
    windows = [range(min(batches_per_step, num_batches)), range(last, num_batches)]
    return windows[: 2 if last else 1]


def known_length(batches: Batches) -> int | None:
    """Returns the batches of an epoch; None if unknown, as for a stream that is only evaluated."""
    return None if isinstance(batches, SequentialBatches) and batches.num_batches is None else len(batches)


class ObservedBatches(Batches):
    """Wraps a loader and keeps a description of its newest batch.

    Args:
        batches: The loader.
    """

    def __init__(self, batches: Batches) -> None:
        self._batches, self.newest, self.name = batches, "", batches.name
        self.has_indices = batches.has_indices

    def __len__(self) -> int:
        return len(self._batches)

    def epochs(self, epoch: int = 0, batch: int = 0) -> Generator[Batch, None, None]:
        return self._observed(self._batches.epochs(epoch, batch))

    def once(self) -> Generator[Batch, None, None]:
        return self._observed(self._batches.once())

    def _observed(self, batches: Generator[Batch, None, None]) -> Generator[Batch, None, None]:
        with closing(batches):
            for batch in batches:
                self.newest = describe_value(batch.value)
                yield batch

    def excerpt(self, spans: Sequence[range]) -> Batches:
        return ObservedBatches(self._batches.excerpt(spans))

    def describe(self) -> str:
        return self._batches.describe()

    def inexact_reasons(self) -> list[str]:
        return self._batches.inexact_reasons()

    def sample_indices(self, epoch: int, batch: int, num_batches: int) -> list[int]:
        return self._batches.sample_indices(epoch, batch, num_batches)

    def redraw(self, epoch: int, batch: int, num_batches: int) -> list[Batch] | None:
        return self._batches.redraw(epoch, batch, num_batches)

    @property
    def num_shards(self) -> int:
        return self._batches.num_shards

    def keep_num_shards(self, num_shards: int) -> None:
        self._batches.keep_num_shards(num_shards)

    def state_dict(self) -> dict[str, Any]:
        return self._batches.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._batches.load_state_dict(state)

    def close(self) -> None:
        self._batches.close()


def describe_first_sample(batches: Batches) -> str:
    """Describes a set's first sample, as a batch of one; for a loader that cannot give single samples, its
    first batch. A loader worker draws it if there are any."""
    if isinstance(batches, Loader) and not isinstance(batches.dataset, Mapping):
        batches = batches.with_plan(BatchPlan(1, 1, shuffle=False))
    one = ObservedBatches(batches)
    with closing(one.once()) as drawn:
        next(drawn)
    return one.newest


def shorten(trainer: Trainer, *, steps: int, hooks: Callable[[Sequence[Hook]], Sequence[Hook]]) -> None:
    """Makes a trainer take only the first and the last window of each epoch, and end after ``steps`` steps,
    when everything that has an interval is due.

    The values that the project reads (``total_steps``, ``progress.fraction``, schedules) remain those of the
    whole run.

    Args:
        trainer: Assembled, before `fit`.
        steps: Steps to take.
        hooks: Returns the hooks to call, given those of the trainer.
    """
    spans = {
        name: first_and_last_windows(known_length(loader) or 2) for name, loader in trainer.loaders.items()
    }
    spans["train"] = first_and_last_windows(len(trainer.loaders["train"]), trainer.stepper.batches_per_step)
    trainer.loaders = {
        name: ObservedBatches(loader.excerpt(spans[name])) for name, loader in trainer.loaders.items()
    }
    trainer.until = EndCondition(steps=steps)
    for hook in trainer.calls.hooks:
        if isinstance(hook, Averaging):
            hook.every, hook.start = 1, 0  # otherwise no average would begin within these few steps
    if trainer.checkpoints is not None:
        trainer.checkpoints.asynchronous = False  # so that the time of a save is measured where it happens
    trainer.calls = CallLists(hooks(trainer.calls.hooks))
    trainer.agenda = Agenda(trainer.calls.step, steps_per_epoch=len(spans["train"]), total_steps=steps)


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


def describe_value(value: Any) -> str:
    """Describes a batch in one short line: ``float32 (64, 3), int64 (64,)``."""
    text = _describe_nest(value)
    return text if len(text) <= _MAX_CHARACTERS else text[:_MAX_CHARACTERS] + " …"


def _describe_nest(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_describe_nest(one)}" for name, one in value.items())
    if isinstance(value, list | tuple) and any(
        isinstance(one, Tensor | Mapping | list | tuple) for one in value
    ):
        return ", ".join(map(_describe_nest, value))
    if isinstance(value, list | tuple):
        return f"{len(value)} {type(value[0]).__name__}" if value else "nothing"
    return f"{type(value).__name__} {value.shape}" if hasattr(value, "shape") else type(value).__name__
