from __future__ import annotations

import fcntl
import functools
import gc
import itertools
import os
import resource
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from roost.base.errors import ContractError
from roost.train.data.workers import worker_handle
from roost.train.data.workers.loader_worker import ANSWER
from roost.train.data.workers.shared_memory import SharedMemoryFull
from roost.train.data.workers.worker_handle import WorkerHandle
from roost.train.data.workers.worker_pool import MAX_VIEWS, WorkerPool
from roost.train.data.workers.worker_status import WorkerContext
from tests.messages import Messages
from tests.train.data.pools import Work, does, gone, linux, numbers, pids, pools, square
from tests.waiting import wait_for

# --- answers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_workers", [1, 2, 3])
@pytest.mark.parametrize("prefetch", [1, 2, 20])
def test_answers_come_in_order_from_any_worker(num_workers: int, prefetch: int) -> None:
    with pools(square, num_workers, prefetch=prefetch) as found:
        for count in (0, 1, 2, 50):
            assert numbers(found.map(range(count))) == [n * n for n in range(count)]
        assert len(pids()) == num_workers, "the same ones all the time"


def test_task_k_is_done_by_worker_k() -> None:
    def make(context: WorkerContext) -> Work:
        return lambda task: (context.worker, context.num_workers, task)

    with pools(make, 3, takes_context=True) as found:
        assert list(found.map("abcde")) == [
            (0, 3, "a"), (1, 3, "b"), (2, 3, "c"), (0, 3, "d"), (1, 3, "e")
        ]  # fmt: skip
        assert list(found.map("x")) == [(0, 3, "x")], "and anew each time"


def test_no_more_tasks_are_taken_than_may_wait() -> None:
    taken: list[int] = []

    def tasks() -> Iterator[int]:
        for number in range(100):
            taken.append(number)
            yield number

    large = torch.zeros(1 << 19)
    with pools(lambda _: large, prefetch=2) as found:
        for number, _ in enumerate(found.map(tasks())):
            assert len(taken) <= number + 1 + 4


def test_any_task_and_any_answer() -> None:
    with pools(lambda task: task) as found:
        tasks = [
            torch.arange(3),
            None,
            {"a": (1, "x")},
            np.zeros((0, 2)),
            b"y" * 1_000_000,
            torch.zeros(10**6),
        ]
        answers = list(found.map(tasks))
    assert torch.equal(answers[0], tasks[0]) and answers[1:3] == tasks[1:3]  # type: ignore[arg-type]
    assert answers[3].shape == (0, 2) and answers[4] == tasks[4] and answers[5].shape == (10**6,)


def test_big_answers_make_the_ring_grow_and_it_stays_bounded() -> None:
    with pools(lambda size: torch.full((size,), 7, dtype=torch.uint8)) as found:
        sizes = [10, 10_000_000, 10, 3_000_000, 10_000_001]
        for size, answer in zip(sizes, found.map(sizes), strict=True):
            assert answer.shape == (size,) and int(answer[-1]) == 7
        del answer
        grown = found.num_bytes
        for _ in found.map([10_000_000] * 40):
            pass
        assert found.num_bytes < max(grown, 9 * 12_000_000)


@pytest.mark.parametrize("size", [4, 1 << 18])
def test_what_is_held_is_never_written_over(size: int) -> None:
    """All answers of a run are held, written to as well, and looked at in the end."""
    with pools(lambda task: {"x": torch.full((size,), task), "y": np.full(5, task)}) as found:
        held = []
        for answer in found.map(range(20)):
            answer["x"][0] += 1000
            held.append(answer)
    for number, answer in enumerate(held):
        assert int(answer["x"][0]) == number + 1000 and (answer["x"][1:] == number).all()
        assert answer["y"].tolist() == [number] * 5
    del held, answer


def test_a_few_are_views_and_the_rest_are_copies() -> None:
    def is_view(tensor: torch.Tensor) -> bool:
        lines = Path("/proc/self/maps").read_text().splitlines()
        spans = [
            [int(end, 16) for end in line.split()[0].split("-")] for line in lines if "roost-batch" in line
        ]
        return any(begin <= tensor.data_ptr() < end for begin, end in spans)

    with pools(square) as found:
        held = list(found.map(range(MAX_VIEWS + 2)))
        assert [is_view(one) for one in held] == [True] * MAX_VIEWS + [False] * 2
        del held[1:]
        assert is_view(next(found.map([1]))), "a slot whose last view is gone is free again"


def test_a_part_of_an_answer_keeps_it() -> None:
    with pools(lambda task: [torch.full((50,), task), torch.zeros(2)]) as found:
        answers = found.map(range(40))
        part = next(answers)[0][10:20].view(2, 5)
        for _ in answers:
            pass
    gc.collect()
    assert (part == 0).all()


def test_pinned_answers_leave_their_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "pin_memory", torch.Tensor.clone)
    with pools(lambda task: (torch.full((9,), task), np.full(9, task)), pin_memory=True) as found:
        held = list(found.map(range(30)))
    assert [(int(one[8]), int(other[8])) for one, other in held] == [(n, n) for n in range(30)]


def num_sent(worker: WorkerHandle) -> int:
    """The answers of a worker that nothing has asked for yet."""
    sent = struct.unpack("i", fcntl.ioctl(worker._answers, termios.FIONREAD, bytes(4)))[0]
    return len(worker._inbox) + int(sent) // ANSWER.size


def test_a_thread_pins_the_next_answer_and_nothing_is_seen_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error belongs to its own task though it was received with the one before. What is left at an early
    end is dropped, and its slots are used again."""
    threads: dict[int, str] = {}

    def pin_memory(self: torch.Tensor) -> torch.Tensor:
        threads[int(self[0])] = threading.current_thread().name
        return self.clone()

    def work(task: int) -> torch.Tensor:
        if task == 4:
            raise ValueError("the fifth")
        return torch.full((9,), task)

    def answers_that_wait(tasks: Iterable[int]) -> Iterator[int]:
        for one in found.map(tasks):
            wait_for(lambda: num_sent(found._workers[0]) >= min(2, len(found._task_workers)))
            yield int(one[8])

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin_memory)
    with pools(work, 1, pin_memory=True) as found:
        answers, seen = answers_that_wait(range(8)), []
        with pytest.raises(ValueError, match="the fifth"):
            for one in answers:
                seen.append(one)
        assert seen == [0, 1, 2, 3]
        assert threads[0] == "MainThread" and threads[3].startswith("roost-pin-memory")
        for _ in range(3):
            assert list(itertools.islice(answers_that_wait(range(10, 60)), 2)) == [10, 11]
        assert numbers(found.map(range(70, 99))) == list(range(70, 99))
        assert numbers(found.map(range(70, 99))) == list(range(70, 99))
        assert len(found._free) == len(found._slots), "all slots are free again"


def test_held_after_closing_and_beginning_anew() -> None:
    with pools(square) as found:
        first = next(found.map([3]))
        found.close()
        second = numbers(found.map(range(30)))
        assert second == [n * n for n in range(30)] and first.tolist() == [9] * 4
        del first
        assert numbers(found.map(range(30))) == second


# --- the ends of an iteration -----------------------------------------------------------------------------


def test_leaving_early_ends_the_workers_and_the_next_one_begins_anew() -> None:
    with pools(square) as found:
        answers = found.map(itertools.count())
        assert numbers(itertools.islice(answers, 3)) == [0, 1, 4]
        before = pids()
        answers.close()
        assert not pids() and all(map(gone, before))
        assert numbers(found.map(range(5))) == [0, 1, 4, 9, 16]


def test_two_at_once_are_refused(messages: Messages) -> None:
    """They would get each other's answers."""
    with pools(square) as found:
        first = found.map(range(40))
        assert int(next(first)[0]) == 0
        with pytest.raises(ContractError) as refused:
            next(found.map(range(3)))
        messages.check(refused.value)
        assert numbers(first) == [n * n for n in range(1, 40)]


def test_closed_in_the_middle(messages: Messages) -> None:
    with pools(square) as found:
        answers = found.map(range(40))
        next(answers)
        found.close()
        with pytest.raises(ContractError) as refused:
            next(answers)
        messages.check(refused.value)
        assert numbers(found.map(range(2))) == [0, 1]


def test_tasks_that_raise() -> None:
    def tasks() -> Iterator[int]:
        yield 1
        raise KeyError("no more")

    with pools(square) as found:
        with pytest.raises(KeyError, match="no more"):
            list(found.map(tasks()))
        assert numbers(found.map([2])) == [4]


def test_an_interrupt_while_an_answer_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer is still to come: the next iteration must not take it for its own."""
    with pools(square, 1) as found:
        assert numbers(found.map([5])) == [25]

        def interrupt(self: Any, look: Any) -> bytes:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(worker_handle.WorkerHandle, "receive", interrupt)
            with pytest.raises(KeyboardInterrupt):
                list(found.map([6]))
        assert numbers(found.map([7])) == [49]


# --- closing ----------------------------------------------------------------------------------------------


def test_closing_twice_and_without_a_beginning() -> None:
    with pools(square) as found:
        found.close()
        assert numbers(found.map([2])) == [4]
        found.close()
        found.close()
    assert not pids()


def note(exits: list[int | None], process: Any) -> None:
    exits.append(process.exitcode)


def test_idle_workers_of_several_pools_end_by_themselves() -> None:
    """Each one forked later has the pipes of the earlier ones open."""
    with pools(square, 3) as first, pools(square, 3) as second:
        assert numbers(first.map(range(4))) == numbers(second.map(range(4)))
        assert len(pids()) == 6
        for found in (first, second):
            exits: list[int | None] = []
            for one in found._workers:
                one._process.close = functools.partial(note, exits, one._process)
            found.close()
            assert exits == [0, 0, 0], "no worker had to be killed"


def test_tasks_that_are_not_awaited_are_not_begun(tmp_path: Path) -> None:
    log = tmp_path / "log"

    def make(context: WorkerContext) -> Work:
        def work(task: int) -> torch.Tensor:
            with log.open("a") as file:
                file.write(f"{task}\n")
            if task == 2:
                wait_for(lambda: context.status.is_end_requested)
            return torch.zeros(4)

        return work

    with pools(make, 1, takes_context=True) as found:
        list(found.map([0]))
        answers = found.map(range(1, 100))
        next(answers)
        wait_for(lambda: "2" in log.read_text())
    assert log.read_text().split() == ["0", "1", "2"]


@linux
def test_a_long_sample_does_not_hold_up_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roost.train.data.workers.worker_pool._CLOSE_SECONDS", 0.05)

    def work(task: int) -> int:
        while task == 1:
            (tmp_path / "hangs").touch()
            signal.pause()
        return task

    with pools(work) as found:
        assert next(found.map(range(10))) == 0, "which is left early"
        answers = found.map(range(10))
        next(answers)
        workers = pids()
        wait_for((tmp_path / "hangs").exists)
        found.close()
        assert len(workers) == 2 and all(map(gone, workers))


@linux
def test_nothing_is_left_of_many(tmp_path: Path) -> None:
    def once() -> None:
        found = WorkerPool(does(square), num_workers=1)
        answers = found.map(range(3))
        next(answers)

    def state() -> tuple[int, int]:
        return len(list(Path("/proc/self/fd").iterdir())), len(pids())

    once()
    gc.collect()
    before = state()
    for _ in range(15):
        once()
    gc.collect()
    wait_for(lambda: state() == before)


@linux
def test_the_garbage_collector_ends_the_workers() -> None:
    found = WorkerPool(does(square), num_workers=2)
    assert numbers(found.map(range(3))) == [0, 1, 4]
    workers = pids()
    cycle: list[Any] = [found]
    cycle.append(cycle)
    del found, cycle
    gc.collect()
    wait_for(lambda: all(map(gone, workers)))


@linux
class Cycle:
    """Garbage that only the collector frees."""

    freed = 0

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        Cycle.freed += 1


@linux
def test_a_worker_frees_no_garbage_of_the_training_process() -> None:
    """It may hold tensors of a GPU, and CUDA cannot be used in a forked process."""
    gc.collect()
    gc.disable()
    try:
        Cycle()

        def freed(_: int) -> int:
            gc.collect()
            return Cycle.freed

        with pools(freed) as pool:
            assert [*pool.map(range(4))] == [0] * 4
    finally:
        gc.enable()
    gc.collect()
    assert Cycle.freed == 1, "there was some"


def test_a_copy_in_a_forked_process_leaves_the_workers_alone() -> None:
    with pools(square) as found:
        assert numbers(found.map([2])) == [4]
        child = os.fork()
        if child == 0:
            found.close()
            found.__del__()
            os._exit(0)
        os.waitpid(child, 0)
        assert numbers(found.map([3, 4])) == [9, 16]


# --- no room ---------------------------------------------------------------------------------------------


@linux
def test_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roost.train.data.workers.shared_memory.available_bytes", lambda: 1_000_000)
    with pools(lambda size: torch.zeros(size, dtype=torch.uint8)) as found:
        answers = found.map([10, 10, 100_000_000, 10])
        assert [len(next(answers)) for _ in range(2)] == [10, 10]
        with pytest.raises(SharedMemoryFull, match=r"100,000,\d+ bytes .*1,000,000 bytes"):
            next(answers)


FULL = """
import resource
import torch
from roost.train.data.workers.worker_pool import WorkerPool
from roost.train.data.workers.shared_memory import SharedMemoryFull
pool = WorkerPool(lambda post: lambda size: torch.zeros(size, dtype=torch.uint8), num_workers=2)
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
answers = pool.map([10, 500_000, 2_000_000])
print(len(next(answers)), len(next(answers)))
try:
    next(answers)
except SharedMemoryFull as error:
    print(error.message)
"""


@linux
def test_no_room_for_real() -> None:
    done = subprocess.run([sys.executable, "-c", FULL], capture_output=True, text=True)
    first, second = done.stdout.splitlines()
    assert first == "10 500000" and second.endswith(": File too large"), done.stderr


@pytest.mark.parametrize("left", [7, 8])
def test_no_open_files_left_for_slots(left: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    gc.collect()  # what errors of other tests still hold
    used = len(list(Path("/dev/fd").iterdir()))
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + left, hard))
    try:
        # Whether that is a slot's own or that of its mapping depends on what this process holds already.
        with pools(square) as found, pytest.raises((OSError, SharedMemoryFull), match="Too many open files"):
            list(found.map([1]))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(list(Path("/dev/fd").iterdir())) == used


# --- the program around it ----------------------------------------------------------------------------------


PROGRAM = """
import os, signal, sys, time
import torch
from roost.train.data.workers.worker_pool import WorkerPool

def make(post):
    def work(task):
        os.write(1, f"{os.getpid()}\\n".encode())
        if task >= 2 and HANGS:
            while True: signal.pause()
        return torch.full((4,), task)
    return work

HANGS = sys.argv[1] == "hangs"
pool = WorkerPool(make, num_workers=2)
answers = pool.map(range(100))
next(answers)
if HANGS:
    list(answers)
os.write(1, b"end\\n")
"""


@linux
def test_a_program_that_ends_without_closing_ends(tmp_path: Path) -> None:
    """Python would wait for workers that wait for tasks."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "ends"], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0 and not done.stderr and "end" in done.stdout.split()
    assert all(gone(int(pid)) for pid in set(done.stdout.split()) - {"end"})


@linux
def test_nothing_is_left_of_a_program_that_is_killed() -> None:
    files = set(Path("/dev/shm").iterdir())
    with subprocess.Popen([sys.executable, "-c", PROGRAM, "hangs"], stdout=subprocess.PIPE) as training:
        assert training.stdout is not None
        workers = {int(training.stdout.readline()) for _ in range(4)}
        assert len(workers) == 2 and not any(map(gone, workers))
        training.kill()
    wait_for(lambda: all(map(gone, workers)))
    assert set(Path("/dev/shm").iterdir()) <= files
