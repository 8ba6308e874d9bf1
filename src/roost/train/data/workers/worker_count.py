"""``num_workers: auto``: chooses the number of loader workers by measuring.

The number of workers changes no bit of a batch, so roost may choose it.
"""

from __future__ import annotations

import itertools
import os
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from roost.base.system import cpu_cores, host_memory
from roost.base.text.byte_sizes import format_bytes
from roost.base.text.counts import format_cores
from roost.base.text.durations import format_short_duration
from roost.train.data.workers import worker_benchmark
from roost.train.data.workers.worker_errors import WorkerDied
from roost.train.data.workers.worker_pool import MAX_VIEWS
from roost.train.data.workers.worker_status import WorkerContext

LIGHT_SECONDS = 0.0003
"""A set whose batches take less gets no worker.

On two idle cores, with a training step of 0.10 ms on one thread, a step with its batch took (ms):

| a batch takes | no worker | 1 worker | 2 workers |
|---|---|---|---|
| 0.05 | 0.16 | 0.15 | 0.17 |
| 0.1 | 0.21 | 0.16 | 0.20 |
| 0.3 | 0.42 | 0.32 | 0.29 |
| 1 | 1.12 | 1.02 | 0.68 |
| 16 | 16.2 | 16.0 | 8.5 |

So for faster batches a worker gains less than a tenth of a millisecond a step, negligible in a long step
(6.99, 6.85 and 6.83 with a batch of 0.3 and a step of 6.4); if other processes or the step itself keep the
cores busy, as much is lost.
"""
_MAX_TIME_RATIO = 0.9
"""More workers must reduce the time of a batch at least to this fraction."""
_FIRST_SECONDS = 0.3
_FIRST_BATCHES = 8
_TRIAL_SECONDS = 0.2
_TRIAL_BATCHES_PER_WORKER = 2
"""The first batch of a worker opens files and is left out."""
_START_SECONDS = 0.02
"""Approximate start time of a worker: a shorter pass cannot gain."""
_FREE_MEMORY_DIVISOR = 4
"""Batches may take this fraction (one fourth) of the free memory."""


class WorkerCountChoice(NamedTuple):
    """The chosen number of workers and the reason."""

    num_workers: int
    reason: str
    """Empty if training will raise an error instead."""


class WorkerBudget(NamedTuple):
    """The resources that loader workers may use."""

    cores: int
    """CPU cores that this process may use."""
    training_threads: int = 0
    """CPU threads on which training computes; 0 if it uses another device."""
    max_workers: int | None = None
    free_bytes: int | None = None
    """Free memory; None: unknown."""

    @property
    def cores_for_workers(self) -> int:
        """Cores that workers may keep busy.

        All of them if training uses at most one thread: workers that are ahead of training sleep, and
        training sleeps while it waits for them. The threads of one operation wait for each other actively, so
        a thread that shares its core delays all. Workers then get the remaining cores, or half of all: a set
        that needs more makes training wait in any case. Half of two cores is no worker.

        Measured on two cores, a step with a batch that keeps a core busy for 16 ms took (ms, the median of
        4 or 5 rounds):

        | the step alone | no worker | 1 worker | 2 workers |
        |---|---|---|---|
        | 0.1 on one thread | 16.2 | 16.0 | 8.5 |
        | 6.4 on one thread | 22.7 | 16.1 | 13.1 |
        | 0.1 on two threads | 17.1 | 20.9 | 17.1 |
        | 4.0 on two threads | 20.6 | 21.4 | 21.2 |
        | 8.9 on two threads | 24.1 | 25.1 | 21.7 |

        With 1 ms instead of 16, two threads also lost by workers. With a set that sleeps for 16 ms they
        gained: 17.9, 16.3 and 8.3 with a step of 0.1; 26.2, 16.3 and 10.2 with a step of 8.9 (the minimum of
        each).
        """
        if self.training_threads <= 1:
            return self.cores if self.cores > 1 else 0
        half = self.cores // 2
        return max(self.cores - self.training_threads, half if half > 1 else 0)


def local_budget(*, training_threads: int, max_workers: int | None = None) -> WorkerBudget:
    """Returns the resources for the workers of this process: the ranks of a machine share its cores and
    memory equally."""
    ranks = max(1, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    free = host_memory.available_bytes()
    return WorkerBudget(
        max(1, cpu_cores.usable_cores() // ranks),
        training_threads,
        max_workers,
        None if free is None else free // ranks,
    )


def choose_num_workers(
    make: Callable[[WorkerContext], Callable[[Any], Any]],
    tasks: Iterable[Any],
    *,
    num_tasks: int,
    budget: WorkerBudget,
    prefetch: int = 2,
    seconds: float = 1.5,
    timeout_seconds: float = 300.0,
    name: str = "",
    fetch_inline: Callable[[Any], Any] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> WorkerCountChoice:
    """Chooses a number of workers by measuring the set in temporary worker processes, because its first
    sample may open files that workers must not share.

    First, one worker fetches up to 8 batches, for 0.3 s or one batch. A set with fast batches gets no worker.
    Otherwise the number of workers is doubled while that gains 10 % or more, for ``seconds`` in total or the
    time of one pass. A set that keeps cores busy gets no more workers than fit on
    `WorkerBudget.cores_for_workers`; one that waits (for a disk, a network) gets proportionally more, up to
    16 or four for each core. Batches in memory take at most a quarter of the free memory. A set that raises
    an error gets no worker: training shows the error at its batch.

    Args:
        make: See `WorkerPool`.
        tasks: The tasks to fetch from the first; repeated when they are used up.
        num_tasks: Number of tasks.
        budget: The resources that workers may use.
        prefetch: Batches that each worker will fetch ahead.
        seconds: Total time for trying more workers.
        timeout_seconds: See `WorkerPool`.
        name: Display name of the set: ``the training set``.
        fetch_inline: Fetches a batch in this process, so that a fast set costs no worker; only for a set that
            opens no files and draws no random numbers.
        should_stop: See `WorkerPool.map`.

    Raises:
        Interrupted: ``should_stop()`` returned True.
        WorkerDied: The first worker died, or hangs.
    """
    deadline = time.monotonic() + seconds
    endless = itertools.cycle(tasks)
    if (
        fetch_inline is not None
        and (inline_seconds := _seconds_inline(fetch_inline, endless)) < LIGHT_SECONDS
    ):
        return WorkerCountChoice(0, f"a batch takes {format_short_duration(inline_seconds)}")
    try:
        costs = _measure_one_worker(make, endless, timeout_seconds, name, should_stop)
    except OSError as error:
        return WorkerCountChoice(0, f"no worker process could be started: {error}")
    cost = worker_benchmark.mean_cost(costs)
    if cost is None:
        return _choice_without_batch(costs, budget, num_tasks)
    duration = f"a batch takes {format_short_duration(cost.seconds)}"
    if cost.seconds < LIGHT_SECONDS:
        return WorkerCountChoice(0, duration)
    if num_tasks * cost.seconds < _START_SECONDS:
        return WorkerCountChoice(0, f"{duration}, and a pass has {num_tasks} of them")
    most, why = max_workers(budget, cost, num_tasks, prefetch)
    if most < 2:
        return WorkerCountChoice(most, f"{duration} ({why})")
    deadline = min(deadline, time.monotonic() + num_tasks * cost.seconds)
    number, tried = _try_doubling(make, endless, cost.seconds, most, deadline, should_stop)
    number = min(most, max(2, budget.cores)) if number is None else number
    return WorkerCountChoice(number, f"{duration} ({', '.join([format_cores(budget.cores), *tried])})")


def _measure_one_worker(
    make: Callable[[WorkerContext], Callable[[Any], Any]],
    tasks: Iterator[Any],
    timeout_seconds: float,
    name: str,
    should_stop: Callable[[], bool],
) -> list[worker_benchmark.BatchCost]:
    """Measures a few batches in one worker."""
    return worker_benchmark.measure(
        make,
        tasks,
        num_workers=1,
        seconds=_FIRST_SECONDS,
        max_batches=_FIRST_BATCHES,
        timeout_seconds=timeout_seconds,
        name=name,
        should_stop=should_stop,
    )


def _seconds_inline(fetch: Callable[[Any], Any], tasks: Iterator[Any]) -> float:
    found = []
    for task in itertools.islice(tasks, 3):
        began = time.perf_counter()
        fetch(task)
        found.append(time.perf_counter() - began)
    return min(found)


def _choice_without_batch(
    costs: list[worker_benchmark.BatchCost], budget: WorkerBudget, num_tasks: int
) -> WorkerCountChoice:
    """Returns the choice if no batch succeeded."""
    if not costs:
        return WorkerCountChoice(0, "it has no batch")
    if not costs[0].timed_out:
        return WorkerCountChoice(0, "")  # training raises the error
    number = min(max_workers(budget, costs[0], num_tasks, prefetch=0)[0], budget.cores)
    return WorkerCountChoice(
        number,
        f"a batch takes more than {worker_benchmark.MAX_BATCH_SECONDS:g} s "
        f"({format_cores(budget.cores)}, not tried for lack of time)",
    )


def _try_doubling(
    make: Callable[[WorkerContext], Callable[[Any], Any]],
    tasks: Iterator[Any],
    seconds_alone: float,
    max_workers: int,
    deadline: float,
    should_stop: Callable[[], bool],
) -> tuple[int | None, list[str]]:
    """Doubles the number of workers while that gains; returns the best number, None if the time did not
    suffice to try, and the tried numbers for the explanation.

    Args:
        make: See `WorkerPool`.
        tasks: Endless tasks.
        seconds_alone: Time of a batch with one worker.
        max_workers: Maximum workers, 2 or more.
        deadline: Monotonic time.
        should_stop: See `WorkerPool.map`.
    """
    found, best, tried = 1, seconds_alone, list[str]()
    for number in _doubling(max_workers):
        left = deadline - time.monotonic()
        if left < _TRIAL_BATCHES_PER_WORKER * seconds_alone:
            return (found if found > 1 else None), [*tried, "more not tried for lack of time"]
        try:
            costs = worker_benchmark.measure(
                make,
                tasks,
                num_workers=number,
                seconds=min(left, _TRIAL_SECONDS),
                min_batches=number * _TRIAL_BATCHES_PER_WORKER,
                should_stop=should_stop,
            )
        except (WorkerDied, OSError):
            return found, [*tried, f"{number} workers failed"]
        steady = worker_benchmark.steady_costs(costs)
        if not steady:
            return found, tried
        each = statistics.fmean(one.seconds for one in steady) / number
        tried.append(f"{number} workers {format_short_duration(each)}")
        if each > _MAX_TIME_RATIO * best:
            return found, tried
        found, best = number, each
        if best < LIGHT_SECONDS:
            return found, tried
    return found, tried


def max_workers(
    budget: WorkerBudget, cost: worker_benchmark.BatchCost, num_tasks: int, prefetch: int
) -> tuple[int, str]:
    """Returns the maximum number of workers by cores, memory and batches, and its reason."""
    # A set that mostly waits may use half a core, even if training uses all of them.
    busy_cores = max(cost.busy_cores, 0.01)
    by_cores = max(round(budget.cores_for_workers / busy_cores), int(0.5 / busy_cores))
    note = ", which training uses too" if budget.training_threads else ""
    bounds = [
        (min(by_cores, max(16, 4 * budget.cores)), f"{format_cores(budget.cores)}{note}"),
        (num_tasks, f"a pass has {num_tasks} of them"),
    ]
    if budget.free_bytes is not None and cost.num_bytes:
        # Each worker has its slots of the pool, the batch that it makes, and the samples of that batch.
        batches = budget.free_bytes // _FREE_MEMORY_DIVISOR // cost.num_bytes
        why = f"{format_bytes(cost.num_bytes)} of memory, of which {format_bytes(budget.free_bytes)} are free"
        bounds.append((max(0, (batches - MAX_VIEWS) // (prefetch + 2)), why))
    if budget.max_workers is not None:
        bounds.append((budget.max_workers, f"{budget.max_workers} at most"))
    return min(bounds)


def _doubling(max_workers: int) -> Iterator[int]:
    """Yields 2, 4, 8, …, ``max_workers``."""
    number = 2
    while number < max_workers:
        yield number
        number *= 2
    yield max_workers
