"""The batches of a set, measured: contents of the first one, sizes, and how fast the loader gives them."""

from __future__ import annotations

import dataclasses
import itertools
import statistics
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from time import perf_counter
from typing import Any

import numpy as np
from torch import Tensor

from roost.package.results.data_report import BatchPart, BatchSizes, FirstBatch, LoadingTimes
from roost.train.data.batches import Batch
from roost.train.data.plans.batch_plan import Draw, Plan
from roost.train.data.plans.sample_columns import lengths_of

SECONDS = 2.0
"""How long batches of one set are drawn, after the first one."""
_PLAN_SECONDS = 0.3
_MIN_TRAIN_BATCHES = 8
"""Batches to draw from a training set even if an epoch has fewer."""
_MAX_LISTED = 8
"""A longer list of nests is a list of samples: only its first element is described."""


class BatchTimer:
    """Draws batches of one set and measures them; the measurements so far remain after an error of the set.

    The time of a batch is the time spent waiting for it. The first batch is not counted; with loader workers
    the first batch of each is not, because these come at the same time.
    """

    def __init__(self) -> None:
        self.batch: FirstBatch | None = None
        """None while all batches were empty."""
        self._batch_seconds: list[float] = []
        self._sizes: list[int] = []

    def draw(self, batches: Generator[Batch, None, None], *, seconds: float = SECONDS) -> None:
        """Draws batches until the time or an epoch is over.

        Args:
            batches: Closed at the end.
            seconds: Time after the first batch.

        Raises:
            Exception: An error of the set.
        """
        left = seconds
        with closing(batches):
            while left > 0:
                started = perf_counter()
                batch = next(batches, None)
                if batch is None:
                    return
                took = perf_counter() - started
                left -= took if self._batch_seconds else 0.0
                self._batch_seconds.append(took)
                self._sizes.append(batch.num_samples)
                if self.batch is None and batch.num_samples:
                    self.batch = describe_batch(batch)
                if batch.ends_epoch and len(self._batch_seconds) >= _MIN_TRAIN_BATCHES:
                    return

    def times(self, num_workers: int | None = 0) -> LoadingTimes | None:
        """Returns the times of the batches that ``num_workers`` loader workers made; None without a batch."""
        if not self._batch_seconds:
            return None
        each = max(1, num_workers or 0)
        # Whole rounds of the workers: while one batch is waited for, those of the other workers arrive, too.
        counted = slice(each, len(self._batch_seconds) // each * each)
        later, num_samples = self._batch_seconds[counted], sum(self._sizes[counted])
        return LoadingTimes(
            num_batches=len(self._batch_seconds),
            num_empty=self._sizes.count(0),
            first=self._batch_seconds[0],
            batch=statistics.fmean(later) if later else None,
            slowest=max(later, default=None),
            sample=sum(later) / num_samples if num_samples else None,
        )


# ---- contents of a batch --------------------------------------------------------------------------------


def describe_batch(batch: Batch) -> FirstBatch:
    """Returns the parts of a batch by name, with types and shapes, and its size in bytes."""
    num_bytes = sum(one.nbytes for one in _arrays(batch.value))
    return FirstBatch(num_samples=batch.num_samples, num_bytes=num_bytes, parts=list(_parts("", batch.value)))


def _parts(name: str, value: Any) -> Iterator[BatchPart]:
    if isinstance(value, Tensor | np.ndarray):
        yield BatchPart(name, str(value.dtype).removeprefix("torch."), list(value.shape))
    elif (inside := _items(value)) is None:
        yield BatchPart(name, _type_name(value))
    elif isinstance(value, list | tuple) and len(inside) > _MAX_LISTED:
        yield BatchPart(name, f"{len(inside)} of these:")
        yield from _parts(f"{name}[0]", inside[0][1])
    else:
        for inner, one in inside:
            yield from _parts(f"{name}.{inner}" if name else inner, one)


def _items(value: Any) -> list[tuple[str, Any]] | None:
    """Returns the named items of a nest; None if the value is no nest."""
    if isinstance(value, Mapping):
        return [(str(name), one) for name, one in value.items()]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
    if not isinstance(value, list | tuple):
        return None
    if not any(isinstance(one, Tensor | np.ndarray) or _items(one) is not None for one in value):
        return None
    names = getattr(value, "_fields", map(str, range(len(value))))
    return list(zip(names, value, strict=True))


def _type_name(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"{len(value)} {type(value[0]).__name__}" if value else "nothing"
    return type(value).__name__


def _arrays(value: Any) -> Iterator[Any]:
    if isinstance(value, Tensor | np.ndarray):
        yield value
    for _, one in _items(value) or ():
        yield from _arrays(one)


# ---- sizes by the batch plan ----------------------------------------------------------------------------


def batch_sizes(plan: Plan, lengths: Any = None) -> BatchSizes | None:
    """Returns the sizes of a plan's batches and their share of padding, without reading a sample. None if the
    plan mixes several sets.

    Args:
        plan: Batch plan of one set.
        lengths: (num_samples,) lengths of the set's samples, if they are known.
    """
    known = lengths_of(lengths, setting="lengths") if lengths is not None else None
    counts: list[int] = []
    filled = whole = 0
    until = perf_counter() + _PLAN_SECONDS
    for draw in itertools.takewhile(lambda _: perf_counter() < until, plan.batches(0)):
        if not isinstance(draw, Draw):
            return None
        counts.append(len(draw.indices))
        if known is not None and draw.indices:
            own = known[draw.indices]
            filled, whole = filled + int(own.sum()), whole + len(own) * int(own.max())
    if not counts:
        return None
    usual = counts[:-1] or counts  # the last batch may be short
    return BatchSizes(
        num_batches=len(counts),
        least=min(usual),
        median=statistics.median(usual),
        most=max(usual),
        padding=1 - filled / whole if whole else None,
    )
