"""The loaders that are compared. Each opens a case, and starts passes over it."""

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
from .cases import Case, RepeatedTensor


class Feed(NamedTuple):
    """An open loader of one case."""

    begin: Callable[[], Iterator[Any]]
    """Starts a pass from the first batch."""
    value: Callable[[Any], Any]
    """Returns the batch of an item that the pass gives."""
    num_workers: Callable[[], int | None]
    """Returns the number of loader workers."""


class Candidate(NamedTuple):
    """A loader with its settings, and its name in the table."""

    name: str
    open: Callable[[Case], AbstractContextManager[Feed]]


def roost(num_workers: int | None) -> Candidate:
    """Returns roost's Loader; None is ``auto``."""

    @contextlib.contextmanager
    def opened(case: Case) -> Iterator[Feed]:
        plan = BatchPlan(len(case.dataset), case.batch_size or 1, shuffle=case.shuffle)
        collate = _only_sample if case.batch_size is None else None
        loader = Loader(case.dataset, plan=plan, collate=collate, num_workers=num_workers)
        with contextlib.closing(loader):
            yield Feed(loader.once, lambda batch: batch.value, lambda: loader.num_workers)

    return Candidate(f"roost, {_workers_label(num_workers)}", opened)


def _only_sample(samples: list[Any]) -> Any:
    return samples[0]


def peer(kind: str, num_workers: int, *, persistent: bool = False) -> Candidate:
    """Returns torch's DataLoader or torchdata's StatefulDataLoader; persistent: workers outlive a pass."""
    loaders: dict[str, Callable[..., Any]] = {"DataLoader": DataLoader}
    if has_torchdata():
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
            collate_fn=_to_shared_memory if case.batch_size is None else None,
            persistent_workers=persistent,
        )
        yield Feed(lambda: iter(loader), lambda batch: batch, lambda: num_workers)

    return Candidate(f"{kind}, {_workers_label(num_workers)}{', persistent' if persistent else ''}", opened)


def _to_shared_memory(sample: Any) -> Any:
    # One copy, directly into shared memory, as in torch's own collate. A tensor returned unchanged would move
    # there once, and all later batches would share its memory.
    return sample if get_worker_info() is None else default_collate([sample])


def has_torchdata() -> bool:
    """Returns whether torchdata is installed."""
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


GATHER = Candidate("limit: one gather a batch", _gather)
RING = Candidate("limit: bare ring", _ring)


def for_case(case: Case) -> list[Candidate]:
    """Returns all loaders for a case, with its limit."""
    numbers = (0, 1, 2)
    found = [*map(roost, (*numbers, None)), *(peer("DataLoader", number) for number in numbers)]
    if has_torchdata():
        found += [peer("StatefulDataLoader", number) for number in numbers]
    if isinstance(case.dataset, RepeatedTensor):
        return [RING, *found]
    return [GATHER, *found] if isinstance(case.dataset, TensorDataset) else found


def for_start() -> list[Candidate]:
    """Returns the loaders whose first batches are timed."""
    found = [roost(0), roost(1), roost(2)]
    found += [peer("DataLoader", 0), peer("DataLoader", 2), peer("DataLoader", 2, persistent=True)]
    if has_torchdata():
        found += [peer("StatefulDataLoader", 2), peer("StatefulDataLoader", 2, persistent=True)]
    return found


def with_two_workers() -> list[Candidate]:
    """Returns the loaders whose memory is measured."""
    found = [RING, roost(2), peer("DataLoader", 2)]
    return [*found, peer("StatefulDataLoader", 2)] if has_torchdata() else found


def _workers_label(num_workers: int | None) -> str:
    if num_workers is None:
        return "auto"
    return f"{num_workers} worker{'' if num_workers == 1 else 's'}"
