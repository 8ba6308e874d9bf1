"""The loaders that are compared: each opens a case, and begins passes over it."""

from __future__ import annotations

import contextlib
import importlib.util
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader, TensorDataset, default_collate, get_worker_info

from roost.train.data.loader import Loader
from roost.train.data.plans.batch_plan import BatchPlan

from . import bare
from .cases import Case, Ready


class Feed(NamedTuple):
    """An open loader."""

    begin: Callable[[], Iterator[Any]]
    """A pass from the first batch on."""
    value: Callable[[Any], Any]
    """The batch, of what the pass gives."""
    num_workers: Callable[[], int | None]


class Way(NamedTuple):
    """A loader with its settings, by its name in the table."""

    name: str
    open: Callable[[Case], AbstractContextManager[Feed]]


def roost(num_workers: int | None) -> Way:
    """roost's Loader; None is ``auto``."""

    @contextlib.contextmanager
    def opened(case: Case) -> Iterator[Feed]:
        plan = BatchPlan(len(case.dataset), case.batch_size or 1, shuffle=case.shuffle)
        collate = _only if case.batch_size is None else None
        loader = Loader(case.dataset, plan=plan, collate=collate, num_workers=num_workers)
        with contextlib.closing(loader):
            yield Feed(loader.once, lambda batch: batch.value, lambda: loader.num_workers)

    return Way(f"roost, {_words(num_workers)}", opened)


def _only(samples: list[Any]) -> Any:
    return samples[0]


def peer(kind: str, num_workers: int, *, kept: bool = False) -> Way:
    """torch's DataLoader, or torchdata's StatefulDataLoader; kept: its workers live on after a pass."""
    loaders: dict[str, Callable[..., Any]] = {"DataLoader": DataLoader}
    if stateful():
        from torchdata.stateful_dataloader import StatefulDataLoader

        warnings.filterwarnings("ignore", message="'set_vital' is deprecated")
        loaders["StatefulDataLoader"] = StatefulDataLoader

    @contextlib.contextmanager
    def opened(case: Case) -> Iterator[Feed]:
        loader = loaders[kind](
            case.dataset,
            batch_size=case.batch_size,
            shuffle=case.shuffle,
            num_workers=num_workers,
            collate_fn=_straight if case.batch_size is None else None,
            persistent_workers=kept,
        )
        yield Feed(lambda: iter(loader), lambda batch: batch, lambda: num_workers)

    return Way(f"{kind}, {_words(num_workers)}{', persistent' if kept else ''}", opened)


def _straight(sample: Any) -> Any:
    # One copy, straight into shared memory, as torch's own collate does it. A tensor that is returned as it
    # is would move there once, and all batches would share its memory from then on.
    return sample if get_worker_info() is None else default_collate([sample])


def stateful() -> bool:
    """Whether torchdata is here."""
    return importlib.util.find_spec("torchdata") is not None


@contextlib.contextmanager
def _gather(case: Case) -> Iterator[Feed]:
    tensors, size = case.dataset.tensors, case.batch_size or 1

    def once() -> Iterator[Any]:
        for indices in torch.split(torch.randperm(len(case.dataset)), size):
            yield [tensor[indices] for tensor in tensors]

    yield Feed(once, lambda batch: batch, lambda: 0)


@contextlib.contextmanager
def _ring(case: Case) -> Iterator[Feed]:
    with bare.ring(case.dataset.ready) as batches:
        yield Feed(lambda: batches, lambda batch: batch, lambda: 1)


GATHER = Way("limit: one gather a batch", _gather)
RING = Way("limit: bare ring", _ring)


def ways(case: Case) -> list[Way]:
    """All for this case."""
    numbers = (0, 1, 2)
    found = [*map(roost, (*numbers, None)), *(peer("DataLoader", number) for number in numbers)]
    if stateful():
        found += [peer("StatefulDataLoader", number) for number in numbers]
    if isinstance(case.dataset, Ready):
        return [RING, *found]
    return [GATHER, *found] if isinstance(case.dataset, TensorDataset) else found


def passing() -> list[Way]:
    """Those whose first batches are timed."""
    found = [roost(0), roost(1), roost(2)]
    found += [peer("DataLoader", 0), peer("DataLoader", 2), peer("DataLoader", 2, kept=True)]
    if stateful():
        found += [peer("StatefulDataLoader", 2), peer("StatefulDataLoader", 2, kept=True)]
    return found


def of_two_workers() -> list[Way]:
    """Those whose memory is measured."""
    found = [RING, roost(2), peer("DataLoader", 2)]
    return [*found, peer("StatefulDataLoader", 2)] if stateful() else found


def _words(num_workers: int | None) -> str:
    if num_workers is None:
        return "auto"
    return f"{num_workers} worker{'' if num_workers == 1 else 's'}"
