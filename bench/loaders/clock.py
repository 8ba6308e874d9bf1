"""Measures the time per batch in the steady part of a pass, and at its start."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from .candidates import Candidate
from .cases import Case

WARM_BATCHES = 12
"""Batches before the clock starts: more than any loader here has in flight."""
CHECKED = 3
"""Number of these whose values are checked."""


class Steady(NamedTuple):
    """Means over the batches of the steady part."""

    us: float
    """Wall time per batch."""
    waited_us: float
    """The part of it in which the consumer waited."""
    cpu_us: float
    """CPU time of the consumer's process per batch, without its work on the batch."""
    num_workers: int | None
    """Number of loader workers at the end."""


class Start(NamedTuple):
    """Times to a first batch."""

    first_ms: float
    """From the construction of the loader."""
    second_pass_ms: float
    """From the last batch of the first pass."""


def steady(case: Case, candidate: Candidate, seconds: float) -> Steady:
    """Times batches for about ``seconds``, at least 12 of them."""
    with candidate.open(case) as feed, _closed(feed.begin()) as batches:
        each = _warm(case, feed.value, batches, seconds / 4)
        number = max(WARM_BATCHES, min(int(seconds / each), len(case.dataset) // (case.batch_size or 1) // 2))
        number -= number % 2  # two workers give batches in pairs
        worked = 0.0
        cpu, began = time.process_time(), time.perf_counter()
        if case.consume_ms:
            for _batch in itertools.islice(batches, number):
                got = time.perf_counter()
                case.consume()
                worked += time.perf_counter() - got
        else:
            for _batch in itertools.islice(batches, number):
                pass
        wall, cpu = time.perf_counter() - began, time.process_time() - cpu
        num_workers = feed.num_workers()
    us, cpu_us = wall / number * 1e6, cpu / number * 1e6
    return Steady(us, us - worked / number * 1e6, cpu_us - case.consume_ms * 1000, num_workers)


def _warm(case: Case, value: Any, batches: Iterator[Any], seconds: float) -> float:
    """Draws batches that are not counted; returns the seconds per batch."""
    for batch in itertools.islice(batches, CHECKED):
        case.check(value(batch))
    most = len(case.dataset) // (case.batch_size or 1) // 4
    began = time.perf_counter()
    for number, _batch in enumerate(itertools.islice(batches, most), 1):
        case.consume()
        if number >= WARM_BATCHES - CHECKED and time.perf_counter() - began > seconds:
            break
    return (time.perf_counter() - began) / number


@contextlib.contextmanager
def _closed(batches: Iterator[Any]) -> Iterator[Iterator[Any]]:
    try:
        yield batches
    finally:
        if hasattr(batches, "close"):
            batches.close()


def start(case: Case, candidate: Candidate) -> Start:
    """Times one pass and the first batch of a second one."""
    began = time.perf_counter()
    with candidate.open(case) as feed:
        first = None
        for batch in feed.begin():
            first = first or time.perf_counter()
            case.check(feed.value(batch))
            last = time.perf_counter()
        assert first is not None
        with _closed(feed.begin()) as batches:
            next(batches)
            return Start((first - began) * 1000, (time.perf_counter() - last) * 1000)
