"""Measures batches in temporary loader workers: time, CPU use and memory."""

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
"""Time limit of one batch, checked before each sample."""


class BatchCost(NamedTuple):
    """The cost of one batch, measured in its worker."""

    seconds: float = 0.0
    busy_cores: float = 0.0
    """Cores that the batch kept busy, on average."""
    num_bytes: int = 0
    worker: int = 0
    error: str = ""
    """Class name of the exception, if it failed."""
    timed_out: bool = False
    """Whether it exceeded `MAX_BATCH_SECONDS`."""


class _BatchTimeout(BaseException):
    """The batch exceeds the time limit. Not an Exception, because a set may catch those."""


def measure(
    make: Callable[[WorkerContext], Callable[[Any], Any]],
    tasks: Iterator[Any],
    *,
    num_workers: int,
    seconds: float,
    min_batches: int = 1,
    max_batches: int | None = None,
    timeout_seconds: float = 300.0,
    name: str = "",
    should_stop: Callable[[], bool] = lambda: False,
) -> list[BatchCost]:
    """Returns the costs of batches in their order, fetched by temporary workers.

    Args:
        make: See `WorkerPool`.
        tasks: Endless tasks.
        num_workers: Workers to start, and to end afterwards.
        seconds: Time after which no further batch is begun.
        min_batches: Batches to fetch regardless of ``seconds``.
        max_batches: Maximum batches.
        timeout_seconds: See `WorkerPool`.
        name: Display name of the set.
        should_stop: See `WorkerPool.map`.

    Raises:
        Interrupted: ``should_stop()`` returned True.
        WorkerDied: A worker died, or hangs.
    """

    def tasks_with_deadline() -> Iterator[tuple[Any, float]]:
        # The first task is taken after the start of the workers, which is not counted.
        deadline = time.monotonic() + seconds
        for number, task in enumerate(tasks):
            late = number >= min_batches and time.monotonic() >= deadline
            if late or (max_batches is not None and number >= max_batches):
                return
            yield task, math.inf if number < min_batches else deadline

    timed = functools.partial(_TimedFetch, make)
    pool = WorkerPool(timed, num_workers=num_workers, timeout_seconds=timeout_seconds, max_views=0, name=name)
    try:
        with closing(pool.map(tasks_with_deadline(), should_stop=should_stop)) as answers:
            return [cost for cost in answers if cost is not None]
    finally:
        pool.close()


class _TimeLimitedContext(WorkerContext):
    """A context that raises `_BatchTimeout` at a sample after the deadline."""

    deadline = math.inf

    def begin_sample(self, index: int) -> None:
        super().begin_sample(index)
        if time.monotonic() > _TimeLimitedContext.deadline:
            raise _BatchTimeout


class _TimedFetch:
    """In a worker: fetches a batch and answers its cost."""

    def __init__(self, make: Callable[[WorkerContext], Callable[[Any], Any]], context: WorkerContext) -> None:
        self._make, self._context = make, context
        self._fetch: Callable[[Any], Any] | None = None

    def __call__(self, task: tuple[Any, float]) -> BatchCost | None:
        """Returns the cost of a batch; None if its deadline has passed."""
        argument, deadline = task
        began = time.monotonic()
        if began >= deadline:
            return None
        _TimeLimitedContext.deadline = began + MAX_BATCH_SECONDS
        cpu, queued = _cpu_seconds(), _run_queue_seconds()
        num_bytes, timed_out = 0, False
        try:
            if self._fetch is None:
                self._fetch = self._make(_TimeLimitedContext(*self._context))
            num_bytes = EncodedBatch(self._fetch(argument)).end
        except _BatchTimeout:
            timed_out = True
        except Exception as error:  # noqa: BLE001  - training raises it at the same batch
            return BatchCost(worker=self._context.worker, error=type(error).__name__)
        seconds = time.monotonic() - began
        cpu, queued = _cpu_seconds() - cpu, _run_queue_seconds() - queued
        busy_cores = cpu / max(seconds - queued, cpu, 1e-9)
        return BatchCost(seconds, busy_cores, num_bytes, self._context.worker, timed_out=timed_out)


def _cpu_seconds() -> float:
    """CPU time of this process, its threads, and its finished children."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _run_queue_seconds() -> float:
    """Time for which this thread was runnable while another process used the core."""
    try:
        with open("/proc/thread-self/schedstat", encoding="ascii") as file:
            return int(file.read().split()[1]) / 1e9
    except OSError:  # not Linux, or a kernel without scheduler statistics
        return 0.0


def steady_costs(costs: list[BatchCost]) -> list[BatchCost]:
    """Drops failed batches, and the first batch of each worker, which opens files, if there are others."""
    good = [one for one in costs if not one.error and not one.timed_out]
    seen: set[int] = set()
    later = []
    for one in good:
        if one.worker in seen:
            later.append(one)
        seen.add(one.worker)
    return later or good


def mean_cost(costs: list[BatchCost]) -> BatchCost | None:
    """Returns the mean time and CPU use of a batch and the maximum memory; None if no batch succeeded."""
    good = steady_costs(costs)
    if not good:
        return None
    return BatchCost(
        seconds=statistics.fmean(one.seconds for one in good),
        busy_cores=statistics.fmean(one.busy_cores for one in good),
        num_bytes=max(one.num_bytes for one in costs),
    )
