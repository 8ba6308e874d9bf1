"""How long a batch takes to come: in the steady part of a pass, and at its start."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from .cases import Case
from .ways import Way

WARM_BATCHES = 12
"""Before the clock starts: more than any loader here has in flight."""
CHECKED = 3
"""Of them, whose values are looked at."""


class Steady(NamedTuple):
    """Means over the batches of the steady part."""

    us: float
    """Wall time from batch to batch."""
    waited_us: float
    """The part of it that the consumer did not work."""
    cpu_us: float
    """CPU time of the consumer's process for a batch, without its own work on it."""
    num_workers: int | None
    """That were at work, at the end."""


class Start(NamedTuple):
    """Until a first batch."""

    first_ms: float
    """From the call of the loader's class."""
    second_pass_ms: float
    """From the last batch of the first pass."""


def steady(case: Case, way: Way, seconds: float) -> Steady:
    """Times batches for so long, at least 12 of them."""
    with way.open(case) as feed, _closed(feed.begin()) as batches:
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
    """Draws what does not count; seconds a batch."""
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


def start(case: Case, way: Way) -> Start:
    """Goes through two passes, to the first batch of the second."""
    began = time.perf_counter()
    with way.open(case) as feed:
        first = None
        for batch in feed.begin():
            first = first or time.perf_counter()
            case.check(feed.value(batch))
            last = time.perf_counter()
        assert first is not None
        with _closed(feed.begin()) as batches:
            next(batches)
            return Start((first - began) * 1000, (time.perf_counter() - last) * 1000)
