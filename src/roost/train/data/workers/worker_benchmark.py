"""What batches take in worker processes that end after it."""

from __future__ import annotations

import functools
import math
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, NamedTuple

from roost.train.data.workers.batch_codec import EncodedBatch
from roost.train.data.workers.worker_pool import WorkerPool
from roost.train.data.workers.worker_status import WorkerContext

MAX_BATCH_SECONDS = 10.0
"""Of one batch; it is given up between two samples."""


class BatchCost(NamedTuple):
    """What one batch took, as its worker tells it."""

    seconds: float = 0.0
    busy_share: float = 0.0
    """Cores that it kept busy, on average."""
    num_bytes: int = 0
    worker: int = 0
    error: str = ""
    """The class of the exception that it ended with."""
    timed_out: bool = False
    """It was not finished within the time."""


class _BatchTimeout(BaseException):
    """The batch takes too long; not an Exception, because a set may catch those."""


def measure(
    make: Callable[[WorkerContext], Callable[[Any], Any]],
    tasks: Iterator[Any],
    *,
    num_workers: int,
    seconds: float,
    least: int = 1,
    most: int | None = None,
    timeout_seconds: float = 300.0,
    name: str = "",
    should_stop: Callable[[], bool] = lambda: False,
) -> list[BatchCost]:
    """What batches took, by workers of that number, in their order.

    Args:
        make: As `WorkerPool` takes it.
        tasks: Endless.
        num_workers: To be started, and ended.
        seconds: After which no further batch is begun; one that has begun is finished.
        least: Batches to be fetched however long they take.
        most: Batches at most.
        timeout_seconds: Silence after which a worker is taken to hang.
        name: Of the set.
        should_stop: See `WorkerPool.map`.

    Raises:
        Interrupted: ``stop()`` said so.
        WorkerDied: One died, or hangs.
    """

    def dealt() -> Iterator[tuple[Any, float]]:
        # Asked for the first one when the workers stand: their start does not count.
        until = time.monotonic() + seconds
        for number, task in enumerate(tasks):
            late = number >= least and time.monotonic() >= until
            if late or (most is not None and number >= most):
                return
            yield task, math.inf if number < least else until

    timed = functools.partial(_TimedFetch, make)
    pool = WorkerPool(timed, num_workers=num_workers, timeout_seconds=timeout_seconds, max_views=0, name=name)
    try:
        with closing(pool.map(dealt(), should_stop=should_stop)) as answers:
            return [took for took in answers if took is not None]
    finally:
        pool.close()


class _TimeLimitedContext(WorkerContext):
    """A post that gives a batch up when it takes too long."""

    until = math.inf

    def begin_sample(self, index: int) -> None:
        super().begin_sample(index)
        if time.monotonic() > _TimeLimitedContext.until:
            raise _BatchTimeout


class _TimedFetch:
    """In a worker process: fetches, and answers what that took instead of the batch."""

    def __init__(self, make: Callable[[WorkerContext], Callable[[Any], Any]], context: WorkerContext) -> None:
        self._make, self._context = make, post
        self._fetch: Callable[[Any], Any] | None = None

    def __call__(self, task: tuple[Any, float]) -> BatchCost | None:
        """None: it is too late to begin."""
        what, until = task
        began = time.monotonic()
        if began >= until:
            return None
        _TimeLimitedContext.until = began + MAX_BATCH_SECONDS
        cpu, queued = _cpu_seconds(), _run_queue_seconds()
        num_bytes, timed_out = 0, False
        try:
            if self._fetch is None:
                self._fetch = self._make(_TimeLimitedContext(*self._context))
            num_bytes = EncodedBatch(self._fetch(what)).end
        except _BatchTimeout:
            timed_out = True
        except Exception as error:  # noqa: BLE001  - training meets it at the same batch, and raises it there
            return BatchCost(worker=self._context.worker, error=type(error).__name__)
        seconds = time.monotonic() - began
        cpu, queued = _cpu_seconds() - cpu, _run_queue_seconds() - queued
        share = cpu / max(seconds - queued, cpu, 1e-9)
        return BatchCost(seconds, share, num_bytes, self._context.worker, timed_out=timed_out)


def _cpu_seconds() -> float:
    """Of this process, all its threads, and of processes that it has waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _run_queue_seconds() -> float:
    """That this thread could have run, but somebody else had the core: no waiting of its own."""
    try:
        with open("/proc/thread-self/schedstat", encoding="ascii") as file:
            return int(file.read().split()[1]) / 1e9
    except OSError:  # not Linux, or a kernel that does not count it
        return 0.0


def steady_costs(took: list[BatchCost]) -> list[BatchCost]:
    """Those that came, without the first of each worker, which opens files, where there are others."""
    good = [one for one in took if not one.error and not one.timed_out]
    seen: set[int] = set()
    later = []
    for one in good:
        if one.worker in seen:
            later.append(one)
        seen.add(one.worker)
    return later or good


def mean_cost(took: list[BatchCost]) -> BatchCost | None:
    """What a batch takes on average, and of memory at most; None when none came."""
    good = steady_costs(took)
    if not good:
        return None
    return BatchCost(
        seconds=statistics.fmean(one.seconds for one in good),
        busy_share=statistics.fmean(one.busy_share for one in good),
        num_bytes=max(one.num_bytes for one in took),
    )
