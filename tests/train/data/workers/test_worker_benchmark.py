from __future__ import annotations

import itertools
import multiprocessing
import time
from collections.abc import Callable
from typing import Any

import torch

from roost.train.data.workers import worker_benchmark
from roost.train.data.workers.worker_benchmark import BatchCost
from roost.train.data.workers.worker_status import WorkerContext


def burning(context: WorkerContext) -> Callable[[Any], Any]:
    def burn(task: Any) -> Any:
        end = time.process_time() + 0.005
        while time.process_time() < end:
            pass
        return torch.zeros(1000)

    return burn


def waiting(context: WorkerContext) -> Callable[[Any], Any]:
    return lambda task: time.sleep(0.01)


def refusing(context: WorkerContext) -> Callable[[Any], Any]:
    raise OSError("no such file")


def test_what_keeps_a_core_busy_and_what_waits() -> None:
    took = worker_benchmark.measure(burning, itertools.count(), num_workers=1, seconds=60, max_batches=4)
    burns = worker_benchmark.mean_cost(took)
    assert len(took) == 4 and burns is not None
    assert burns.seconds >= 0.005 and burns.busy_cores > 0.5 and 4000 < burns.num_bytes < 5000
    waits = worker_benchmark.mean_cost(
        worker_benchmark.measure(waiting, itertools.count(), num_workers=1, seconds=60, max_batches=4)
    )
    assert waits is not None
    assert waits.seconds >= 0.01 and waits.busy_cores < 0.5
    assert not multiprocessing.active_children()


def test_every_worker_has_its_part_however_short_the_time() -> None:
    took = worker_benchmark.measure(waiting, itertools.count(), num_workers=2, seconds=0, min_batches=6)
    assert sorted(one.worker for one in took) == [0, 0, 0, 1, 1, 1]
    assert len(worker_benchmark.steady_costs(took)) == 4


def test_an_error_is_named_by_its_class() -> None:
    took = worker_benchmark.measure(refusing, itertools.count(), num_workers=1, seconds=60, max_batches=2)
    assert [one.error for one in took] == ["OSError", "OSError"]
    assert worker_benchmark.mean_cost(took) is None


def test_the_first_of_each_worker_is_left_out_where_there_are_others() -> None:
    first, second, other = BatchCost(9.0, worker=0), BatchCost(1.0, worker=0), BatchCost(9.0, worker=1)
    assert worker_benchmark.steady_costs([first, other]) == [first, other]
    assert worker_benchmark.steady_costs([first, other, second]) == [second]
    failed, late = BatchCost(worker=0, error="ValueError"), BatchCost(10.0, worker=0, timed_out=True)
    assert worker_benchmark.steady_costs([failed, first, late, second]) == [second]
