from __future__ import annotations

import gc
import multiprocessing
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from roost.train.data.batches import Interrupted
from roost.train.data.fetch import BatchFetcher
from roost.train.data.loader import Loader
from roost.train.data.plans.batch_plan import BatchPlan
from roost.train.data.workers import worker_benchmark, worker_count, worker_handle
from roost.train.data.workers.worker_errors import WorkerDied
from roost.train.data.workers.worker_status import WorkerContext
from roost.train.step import seeding
from tests.train.parts import Points, bits

NUM_SAMPLES = 400


class Samples:
    """Light ones."""

    draws_randomness = False

    def __len__(self) -> int:
        return NUM_SAMPLES

    def __getitem__(self, index: int) -> Tensor:
        self.read(index)
        return torch.full((4,), float(index))

    def read(self, index: int) -> None:
        """What it costs."""


class Burning(Samples):
    """2 ms of a core for each."""

    def read(self, index: int) -> None:
        end = time.thread_time() + 0.002
        while time.thread_time() < end:
            pass


class Sleeping(Samples):
    """As one that waits for a disk."""

    def read(self, index: int) -> None:
        time.sleep(0.002)


class Waiting(Samples):
    """As `Sleeping`, but so long that it hardly counts when the machine is busy."""

    def read(self, index: int) -> None:
        time.sleep(0.01)


class Raising(Samples):
    def read(self, index: int) -> None:
        raise ValueError("cannot decode")


class Ending(Samples):
    """Ends its process, if that is not the one that made it."""

    def __init__(self) -> None:
        self.home = os.getpid()

    def read(self, index: int) -> None:
        if os.getpid() != self.home:
            os._exit(3)


def choose(
    dataset: Any, room: worker_count.WorkerBudget, batch_size: int = 4, **options: Any
) -> worker_count.WorkerCountChoice:
    fetch, plan = BatchFetcher(dataset), BatchPlan(NUM_SAMPLES, batch_size, seed=3)

    def make(context: WorkerContext) -> Callable[[Any], Any]:
        fetch.report_samples_to(context.begin_sample)
        return fetch

    choice = worker_count.choose_num_workers(
        make, plan.batches(0), num_tasks=plan.num_batches, budget=room, name="the training set", **options
    )
    assert not multiprocessing.active_children()
    assert "\n" not in choice.reason
    return choice


def test_a_light_set_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_count, "LIGHT_SECONDS", 0.05)  # for a machine that is busy
    choice = choose(Samples(), worker_count.WorkerBudget(cores=2))
    assert choice.num_workers == 0
    assert re.search(r" [\d.]+ ms$", choice.reason)


def test_a_light_set_in_memory_costs_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_count, "LIGHT_SECONDS", 0.05)

    def make(context: WorkerContext) -> Callable[[Any], Any]:
        raise AssertionError("a worker was started")

    fetch = BatchFetcher(TensorDataset(torch.zeros(8, 4)))
    plan = BatchPlan(8, 4)
    choice = worker_count.choose_num_workers(
        make, plan.batches(0), num_tasks=2, budget=worker_count.WorkerBudget(2), fetch_inline=fetch
    )
    assert choice.num_workers == 0


def test_a_set_that_burns_gets_no_more_than_the_cores_that_are_there() -> None:
    assert choose(Burning(), worker_count.WorkerBudget(cores=1)).num_workers == 0
    assert choose(Burning(), worker_count.WorkerBudget(cores=2, training_threads=2)).num_workers == 0
    choice = choose(Burning(), worker_count.WorkerBudget(cores=2))
    assert choice.num_workers in (1, 2)
    assert "(2 cores, 2 workers " in choice.reason


@pytest.mark.parametrize(
    ("cores", "busy", "number"),
    [(1, 0, 0), (2, 0, 2), (2, 1, 2), (2, 2, 0), (4, 4, 2), (16, 16, 8), (16, 4, 12), (16, 1, 16)],
)
def test_cores_for_workers(cores: int, busy: int, number: int) -> None:
    assert worker_count.WorkerBudget(cores, busy).cores_for_workers == number


@pytest.mark.parametrize(
    "room", [worker_count.WorkerBudget(cores=1), worker_count.WorkerBudget(cores=2, training_threads=2)]
)
def test_a_set_that_waits_gets_more_than_the_cores(room: worker_count.WorkerBudget) -> None:
    choice = choose(Waiting(), room._replace(max_workers=4))
    assert choice.num_workers > 1
    assert "2 workers " in choice.reason


def test_batches_must_have_room_in_memory() -> None:
    """Each is of 64 bytes and what it takes to send them."""
    choice = choose(Sleeping(), worker_count.WorkerBudget(cores=2, free_bytes=1000))
    assert choice.num_workers == 0
    assert "of memory" in choice.reason
    assert (
        choose(Sleeping(), worker_count.WorkerBudget(cores=2, free_bytes=4 * 64 * (3 * 4 + 3))).num_workers
        < 3
    )


def test_there_are_no_more_workers_than_asked_for_or_than_batches() -> None:
    assert choose(Sleeping(), worker_count.WorkerBudget(cores=2, max_workers=1)).num_workers == 1
    assert (
        choose(Sleeping(), worker_count.WorkerBudget(cores=2), batch_size=NUM_SAMPLES // 2).num_workers <= 2
    )


def test_what_is_too_slow_to_be_tried_gets_one_for_each_core() -> None:
    choice = choose(Sleeping(), worker_count.WorkerBudget(cores=2), batch_size=40, seconds=0.01)
    assert choice.num_workers == 2
    assert "2 cores" in choice.reason and " workers " not in choice.reason


# --- what the dataset does wrong --------------------------------------------------------------------------


def test_a_set_that_raises_gets_none_and_training_raises_it() -> None:
    choice = choose(Raising(), worker_count.WorkerBudget(cores=2))
    assert choice.num_workers == 0
    assert choice.reason == "", "training raises the error"
    loader = Loader(Raising(), plan=BatchPlan(NUM_SAMPLES, 4), num_workers=None)
    with pytest.raises(ValueError, match="cannot decode"):
        next(loader.epochs())


def test_one_sample_that_raises_does_not_decide() -> None:
    class Broken(Sleeping):
        def read(self, index: int) -> None:
            if index == first:
                raise ValueError("cannot decode")
            super().read(index)

    first = next(BatchPlan(NUM_SAMPLES, 4, seed=3).batches(0)).indices[0]
    assert choose(Broken(), worker_count.WorkerBudget(cores=2, max_workers=2)).num_workers > 0


def test_a_set_that_kills_its_worker_does_not_kill_training() -> None:
    with pytest.raises(WorkerDied, match="exit code 3"):
        choose(Ending(), worker_count.WorkerBudget(cores=2))


def test_a_batch_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_benchmark, "MAX_BATCH_SECONDS", 0.05)
    choice = choose(Sleeping(), worker_count.WorkerBudget(cores=2), batch_size=NUM_SAMPLES)
    assert choice.num_workers == 1  # there is one batch
    assert "more than 0.05 s" in choice.reason


def test_a_set_that_hangs_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    class Hanging(Samples):
        def read(self, index: int) -> None:
            multiprocessing.Event().wait()

    monkeypatch.setattr(worker_handle, "_POLL_SECONDS", 0.05)
    with pytest.raises(WorkerDied, match=r"^data\.loader_timeout: .*0\.2 s .*sample"):
        choose(Hanging(), worker_count.WorkerBudget(cores=2), timeout_seconds=0.2)
    assert "worker 0 " in capfd.readouterr().out


def test_a_stop_is_heard_while_it_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hanging(Samples):
        def read(self, index: int) -> None:
            multiprocessing.Event().wait()

    monkeypatch.setattr(worker_handle, "_POLL_SECONDS", 0.05)
    with pytest.raises(Interrupted):
        choose(Hanging(), worker_count.WorkerBudget(cores=2), should_stop=lambda: True)
    assert not multiprocessing.active_children()


# --- in a loader ------------------------------------------------------------------------------------------


def test_a_loader_resolves_it_once_and_says_so(capfd: pytest.CaptureFixture[str]) -> None:
    loader = Loader(
        Points(), plan=BatchPlan(len(Points()), 4, seed=3), seed=3, num_workers=None, name="the training set"
    )
    assert loader.num_workers is None
    seeding.seed_all(1)
    before = bits(seeding.rng_state())
    assert loader.inexact_reasons() == []
    found = [batch.value for batch in loader.once()]
    assert bits(seeding.rng_state()) == before
    assert isinstance(loader.num_workers, int)
    said = capfd.readouterr().out.splitlines()
    assert len(said) == 1
    assert said[0].startswith(f"num_workers: {loader.num_workers} ") and "the training set" in said[0]
    inline = Loader(Points(), plan=loader.plan, seed=3)
    assert bits(found) == bits([batch.value for batch in inline.once()])
    loader.close()


def test_a_part_of_a_loader_asks_the_whole(capfd: pytest.CaptureFixture[str]) -> None:
    whole = Loader(Points(), plan=BatchPlan(len(Points()), 4), num_workers=None)
    parts = [whole.excerpt([range(1)]), whole.excerpt([range(1, 3)]).excerpt([range(1)])]
    for part in parts:
        assert len(list(part.once())) == 1
        part.close()
    assert whole.num_workers == parts[0].num_workers == parts[1].num_workers
    assert len(capfd.readouterr().out.splitlines()) == 1


def test_nothing_of_the_set_stays_open_here(tmp_path: Path) -> None:
    """Or all workers would read with one offset."""

    class Filed(Sleeping):
        file: Any = None

        def read(self, index: int) -> None:
            super().read(index)
            if self.file is None:
                self.file = (tmp_path / "samples").open("rb")
            self.file.seek(index)
            assert self.file.read(1)[0] == index % 251

    (tmp_path / "samples").write_bytes(bytes(index % 251 for index in range(NUM_SAMPLES)))
    dataset = Filed()
    gc.collect()  # what errors of other tests still hold
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    loader = Loader(dataset, plan=BatchPlan(NUM_SAMPLES, 4), num_workers=None)
    choice = choose(dataset, worker_count.WorkerBudget(cores=2, max_workers=2))
    assert loader.inexact_reasons() == []
    assert choice.num_workers > 0 and dataset.file is None
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors
