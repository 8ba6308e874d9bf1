"""``num_workers: auto``: how many worker processes, found out by measuring.

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
from roost.base.text.durations import format_short_duration
from roost.train.data.workers import worker_benchmark
from roost.train.data.workers.worker_errors import WorkerDied
from roost.train.data.workers.worker_pool import MAX_VIEWS
from roost.train.data.workers.worker_status import WorkerContext

LIGHT_SECONDS = 0.0003
"""A batch that takes less gets no worker.

On two quiet cores, with a training step of 0.10 ms on one thread, a step with its batch took (ms):

| a batch takes | no worker | 1 worker | 2 workers |
|---|---|---|---|
| 0.05 | 0.16 | 0.15 | 0.17 |
| 0.1 | 0.21 | 0.16 | 0.20 |
| 0.3 | 0.42 | 0.32 | 0.29 |
| 1 | 1.12 | 1.02 | 0.68 |
| 16 | 16.2 | 16.0 | 8.5 |

So less than a tenth of a millisecond a step is gained below, which is nothing beside a step of some length
(6.99, 6.85 and 6.83 with a batch of 0.3 and a step of 6.4); where somebody else keeps the cores busy, or the
step itself does, as much is lost.
"""
_MAX_TIME_RATIO = 0.9
"""More workers must bring the time of a batch below this part of what it was."""
_FIRST_SECONDS = 0.3
_FIRST_BATCHES = 8
_TRIAL_SECONDS = 0.2
_TRIAL_BATCHES_PER_WORKER = 2
"""Batches of each worker: the first of a worker opens files and is left out."""
_START_SECONDS = 0.02
"""A worker takes about as long to start: for a pass that is shorter there is nothing to be won."""
_FREE_MEMORY_DIVISOR = 4
"""The batches may take a quarter of what is free."""


class WorkerCountChoice(NamedTuple):
    """What was chosen."""

    num_workers: int
    said: str
    """The choice and its reason, in one line; empty where an error will be told instead."""


class WorkerBudget(NamedTuple):
    """What workers may take."""

    cores: int
    """That this process may use."""
    busy: int = 0
    """Threads on which training itself computes: 0 where it does so on another device."""
    most: int | None = None
    """Workers at most."""
    free_bytes: int | None = None
    """Of memory; None: not known."""

    @property
    def cores_for_workers(self) -> int:
        """Cores that may be kept busy by workers.

        Beside one thread, or none, all of them: workers that are ahead of training sleep, and when they are
        not it waits for them. Threads of one operation wait for each other, awake, so one that shares its
        core holds up all, and workers get what is left over, or half: for a set for which that is not
        enough training would wait anyway. Half of two cores is no worker.

        Measured on two cores, a step with a batch that keeps a core busy for 16 ms took (ms, the median of
        4 or 5 rounds):

        | the step alone | no worker | 1 worker | 2 workers |
        |---|---|---|---|
        | 0.1 on one thread | 16.2 | 16.0 | 8.5 |
        | 6.4 on one thread | 22.7 | 16.1 | 13.1 |
        | 0.1 on two threads | 17.1 | 20.9 | 17.1 |
        | 4.0 on two threads | 20.6 | 21.4 | 21.2 |
        | 8.9 on two threads | 24.1 | 25.1 | 21.7 |

        With 1 ms instead of 16 two threads lost by workers, too. Beside a set that sleeps 16 ms they gained:
        17.9, 16.3 and 8.3 where the step alone takes 0.1; 26.2, 16.3 and 10.2 (8.9; the least of each).
        """
        if self.busy <= 1:
            return self.cores if self.cores > 1 else 0
        half = self.cores // 2
        return max(self.cores - self.busy, half if half > 1 else 0)


def local_budget(*, busy: int, most: int | None = None) -> WorkerBudget:
    """What workers of this process may take; ranks on one machine share its cores and its memory alike.

    Args:
        busy: See `WorkerBudget`; so is ``most``.
        most: Workers at most.
    """
    ranks = max(1, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    free = host_memory.available_bytes()
    return WorkerBudget(
        max(1, cpu_cores.usable_cores() // ranks), busy, most, None if free is None else free // ranks
    )


def choose_num_workers(
    make: Callable[[WorkerContext], Callable[[Any], Any]],
    tasks: Iterable[Any],
    *,
    num_tasks: int,
    room: WorkerBudget,
    prefetch: int = 2,
    seconds: float = 1.5,
    timeout_seconds: float = 300.0,
    name: str = "",
    here: Callable[[Any], Any] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> WorkerCountChoice:
    """Measures a set in worker processes that end after it: its first sample may open files that workers must
    not share. One fetches up to 8 batches, within 0.3 s or one batch. A light set gets no worker. Else
    twice as many workers are tried as long as that brings 10 % or more, within ``seconds`` in all or the time
    of one pass. A set that keeps cores busy gets no more workers than `WorkerBudget.cores_for_workers` have place
    for; one that waits (for a disk, a network) as many more as it waits, up to 16 or four for each core.
    Batches in memory take a quarter of what is free at most. A set that raises meanwhile gets no worker:
    training shows the error in its place. One that dies or hangs would take training with it.

    Args:
        make: As `Ring` takes it.
        tasks: What to fetch, from the first on; again from the first when they are used up.
        num_tasks: Of them.
        room: What workers may take.
        prefetch: Batches that each worker will be ahead.
        seconds: Of trying more workers, all together.
        timeout_seconds: Silence after which a worker is taken to hang.
        name: Of the set in words: ``the training set``.
        here: Gives a batch in this process, so that a light set costs none; where it opens and draws nothing.
        should_stop: See `Ring.map`.

    Raises:
        Interrupted: ``stop()`` said so.
        WorkerDied: The first worker died, or hangs.
    """
    deadline = time.monotonic() + seconds
    endless = itertools.cycle(tasks)
    if here is not None and (light := _seconds_inline(here, endless)) < LIGHT_SECONDS:
        return _choice(0, name, f"a batch takes {format_short_duration(light)}")
    try:
        took = _measure_one_worker(make, endless, timeout_seconds, name, should_stop)
    except OSError as error:
        return _choice(0, name, f"no worker process could be started: {error}")
    usual = worker_benchmark.mean_cost(took)
    if usual is None:
        return _choice_without_batch(took, room, num_tasks, name)
    takes = f"a batch takes {format_short_duration(usual.seconds)}"
    if usual.seconds < LIGHT_SECONDS:
        return _choice(0, name, takes)
    if num_tasks * usual.seconds < _START_SECONDS:
        return _choice(0, name, f"{takes}, and a pass has {num_tasks} of them")
    most, why = _max_workers(room, usual, num_tasks, prefetch)
    if most < 2:
        return _choice(most, name, f"{takes} ({why})")
    deadline = min(deadline, time.monotonic() + num_tasks * usual.seconds)
    number, tried = _try_doubling(make, endless, usual.seconds, most, deadline, should_stop)
    number = min(most, max(2, room.cores)) if number is None else number
    return _choice(number, name, f"{takes} ({', '.join([_format_cores(room.cores), *tried])})")


def _measure_one_worker(
    make: Callable[[WorkerContext], Callable[[Any], Any]],
    tasks: Iterator[Any],
    timeout_seconds: float,
    name: str,
    should_stop: Callable[[], bool],
) -> list[worker_benchmark.BatchCost]:
    """What a few batches took, by one worker."""
    return worker_benchmark.measure(
        make,
        tasks,
        num_workers=1,
        seconds=_FIRST_SECONDS,
        most=_FIRST_BATCHES,
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
    took: list[worker_benchmark.BatchCost], room: WorkerBudget, num_tasks: int, name: str
) -> WorkerCountChoice:
    """The choice where no batch came."""
    if not took:
        return _choice(0, name, "it has no batch")
    if not took[0].timed_out:
        return WorkerCountChoice(0, "")  # training raises it, and tells it
    number = min(_max_workers(room, took[0], num_tasks, prefetch=0)[0], room.cores)
    return _choice(
        number,
        name,
        f"a batch takes more than {worker_benchmark.MAX_BATCH_SECONDS:g} s ({_format_cores(room.cores)}, none was tried, for time)",  # noqa: E501
    )


def _try_doubling(
    make: Callable[[WorkerContext], Callable[[Any], Any]],
    tasks: Iterator[Any],
    alone: float,
    most: int,
    deadline: float,
    should_stop: Callable[[], bool],
) -> tuple[int | None, list[str]]:
    """The number of workers, None where there was no time for finding out, and what was tried in words.

    Args:
        make: As above.
        tasks: Endless.
        alone: Seconds of a batch from one worker.
        most: Workers at most, 2 or more.
        deadline: Monotonic seconds.
        should_stop: As above.
    """
    found, best, said = 1, alone, list[str]()
    for number in _doubling(most):
        left = deadline - time.monotonic()
        if left < _TRIAL_BATCHES_PER_WORKER * alone:
            return (found if found > 1 else None), [*said, "more were not tried, for time"]
        try:
            took = worker_benchmark.measure(
                make,
                tasks,
                num_workers=number,
                seconds=min(left, _TRIAL_SECONDS),
                min_batches=number * _TRIAL_BATCHES_PER_WORKER,
                should_stop=should_stop,
            )
        except (WorkerDied, OSError):
            return found, [*said, f"{number} workers failed"]
        steady = worker_benchmark.steady_costs(took)
        if not steady:
            return found, said
        each = statistics.fmean(one.seconds for one in steady) / number
        said.append(f"{number} workers {format_short_duration(each)}")
        if each > _MAX_TIME_RATIO * best:
            return found, said
        found, best = number, each
        if best < LIGHT_SECONDS:
            return found, said
    return found, said


def _max_workers(
    room: WorkerBudget, took: worker_benchmark.BatchCost, num_tasks: int, prefetch: int
) -> tuple[int, str]:
    """Workers at most, by cores, memory and batches; and why no more."""
    # Half a core is there for a set that mostly waits, also where training has all of them.
    share = max(took.busy_share, 0.01)
    by_cores = max(round(room.cores_for_workers / share), int(0.5 / share))
    beside = ", and training computes on them" if room.busy else ""
    bounds = [
        (min(by_cores, max(16, 4 * room.cores)), f"{_format_cores(room.cores)}{beside}"),
        (num_tasks, f"a pass has {num_tasks} of them"),
    ]
    if room.free_bytes is not None and took.num_bytes:
        # Each worker has its slots of the pool, a batch that it makes, and the samples that this is made of.
        batches = room.free_bytes // _FREE_MEMORY_DIVISOR // took.num_bytes
        why = f"{format_bytes(took.num_bytes)} of memory, of which {format_bytes(room.free_bytes)} are free"
        bounds.append((max(0, (batches - MAX_VIEWS) // (prefetch + 2)), why))
    if room.most is not None:
        bounds.append((room.most, f"{room.most} at most"))
    return min(bounds)


def _doubling(most: int) -> Iterator[int]:
    """2, 4, 8, … and ``most``."""
    number = 2
    while number < most:
        yield number
        number *= 2
    yield most


def _choice(number: int, name: str, why: str) -> WorkerCountChoice:
    return WorkerCountChoice(number, f"num_workers: {number} for {name or 'the set'}: {why}")


def _format_cores(number: int) -> str:
    return f"{number} core{'' if number == 1 else 's'}"
