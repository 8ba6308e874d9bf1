"""What a run in miniature trains on: the first and the last window of an epoch, and of each other set the
first and the last batch."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from roost.train.agenda import Agenda
from roost.train.hook import CallLists, Hook
from roost.train.loader import Batch, Loader
from roost.train.plan import BatchPlan
from roost.train.stepper import Stepper
from roost.train.trainer import Trainer
from roost.train.until import Until

_MOST_CHARACTERS = 120


@dataclass(frozen=True, kw_only=True)
class Excerpt(BatchPlan):
    """Some batches of another plan, as if an epoch had no others."""

    whole: BatchPlan
    spans: tuple[range, ...] = field(default=())
    """The numbers of these batches, ascending."""

    @classmethod
    def of(cls, plan: BatchPlan, spans: Iterable[range]) -> Excerpt:
        """The batches of ``plan`` that have these numbers."""
        return cls(**vars(plan), whole=plan, spans=tuple(spans))

    @property
    def num_batches(self) -> int:
        return sum(map(len, self.spans))

    def size(self, batch: int) -> int:
        return self.whole.size([*itertools.chain(*self.spans)][batch])

    def batches(self, epoch: int, start: int = 0) -> Iterator[list[int]]:
        for span in self.spans:
            first, start = start, max(0, start - len(span))
            if first < len(span):
                yield from itertools.islice(self.whole.batches(epoch, span[first]), len(span) - first)


def ends(num_batches: int, batches_per_step: int = 1) -> list[range]:
    """The batches of an epoch's first window, and of its last if that is another one; it may be short."""
    last = (num_batches - 1) // batches_per_step * batches_per_step
    windows = [range(min(batches_per_step, num_batches)), range(last, num_batches)]
    return windows[: 2 if last else 1]


class ShortLoader(Loader):
    """A loader with another plan, which remembers what its newest batch looks like.

    Args:
        whole: The loader that it is like in everything else.
        plan: Of the same set.
    """

    def __init__(self, whole: Loader, plan: BatchPlan) -> None:
        vars(self).update(vars(whole))
        self.plan, self.seen = plan, ""

    @property
    def num_samples(self) -> int:
        """In one pass."""
        return sum(map(self.plan.size, range(self.plan.num_batches)))

    def epochs(self, epoch: int = 0, batch: int = 0) -> Generator[Batch, None, None]:
        return self._noted(super().epochs(epoch, batch))

    def once(self) -> Generator[Batch, None, None]:
        return self._noted(super().once())

    def _noted(self, batches: Generator[Batch, None, None]) -> Generator[Batch, None, None]:
        with closing(batches):
            for batch in batches:
                self.seen = looks(batch.value)
                yield batch


def sample_of(loader: Loader) -> str:
    """What a set's first sample looks like, in a batch of one; a loader worker draws it if there are any."""
    one = ShortLoader(loader, BatchPlan(1, 1, seed=loader.plan.seed, shuffle=False))
    one.num_workers = min(1, loader.num_workers)
    with closing(one.once()) as batches:
        next(batches)
    return one.seen


def shorten(trainer: Trainer, *, steps: int, hooks: Callable[[Sequence[Hook]], Sequence[Hook]]) -> None:
    """Makes a trainer take only the first and the last window of each epoch, and end after ``steps`` steps,
    when everything that has an interval is due.

    What the project reads (``total_steps``, ``progress.fraction``, schedules) stays that of the whole run.

    Args:
        trainer: As it was assembled, before `fit`.
        steps: After which it has reached its goal.
        hooks: Gives the hooks to call, from those that it has.
    """
    spans = {name: ends(len(loader)) for name, loader in trainer.loaders.items()}
    spans["train"] = ends(len(trainer.loaders["train"]), trainer.stepper.batches_per_step)
    trainer.loaders = {
        name: ShortLoader(loader, Excerpt.of(loader.plan, spans[name]))
        for name, loader in trainer.loaders.items()
    }
    trainer.until = Until(steps=steps)
    trainer.calls = CallLists(hooks(trainer.calls.hooks))
    trainer.agenda = Agenda(trainer.calls.step, steps_per_epoch=len(spans["train"]), total_steps=steps)


@contextmanager
def all_due(stepper: Stepper, *, within: int) -> Iterator[None]:
    """Inside, each optimizer moves once in so many steps, however seldom it does in the run."""
    often = {name: optim.every_n_steps for name, optim in stepper.optimizers.items()}
    for optim in stepper.optimizers.values():
        optim.every_n_steps = min(optim.every_n_steps, within)
    try:
        yield
    finally:
        for name, optim in stepper.optimizers.items():
            optim.every_n_steps = often[name]


def looks(value: Any) -> str:
    """What a batch looks like, in one short line: ``float32 (64, 3), int64 (64,)``."""
    text = _looks(value)
    return text if len(text) <= _MOST_CHARACTERS else text[:_MOST_CHARACTERS] + " …"


def _looks(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_looks(one)}" for name, one in value.items())
    if isinstance(value, list | tuple) and any(
        isinstance(one, Tensor | Mapping | list | tuple) for one in value
    ):
        return ", ".join(map(_looks, value))
    if isinstance(value, list | tuple):
        return f"{len(value)} {type(value[0]).__name__}" if value else "nothing"
    return f"{type(value).__name__} {value.shape}" if hasattr(value, "shape") else type(value).__name__
