from __future__ import annotations

import contextlib
import ctypes
import itertools
import logging
import multiprocessing
import os
import re
import signal
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from roost.train.data.workers import worker_errors, worker_handle, worker_pool
from roost.train.data.workers.worker_errors import WorkerDied
from roost.train.data.workers.worker_status import WorkerContext
from tests.train.data.pools import OnPacking, Work, dies, gone, linux, numbers, pids, pools, square
from tests.waiting import wait_for

# --- deaths -----------------------------------------------------------------------------------------------


WAYS = [
    ("SIGKILL", -signal.SIGKILL),
    ("SIGSEGV", -signal.SIGSEGV),
    ("SIGBUS", -signal.SIGBUS),
    ("exit", 3),
    ("os._exit", 4),
]


def of(error: WorkerDied, worker: int, exit_code: int | None, place: str = "", **options: Any) -> bool:
    """Whether it is the error about that worker, ended so and there, whatever its process."""
    pid = re.search(r"\(pid (\d+)\)", error.message)
    return pid is not None and str(error) == str(
        worker_errors.worker_died(worker, int(pid[1]), exit_code, place, **options)
    )


@linux
@pytest.mark.parametrize(("how", "exit_code"), WAYS)
@pytest.mark.parametrize("when", ["reading", "packing"])
def test_a_worker_that_dies(how: str, exit_code: int, when: str, capfd: pytest.CaptureFixture[str]) -> None:
    def make(context: WorkerContext) -> Work:
        def work(task: int) -> Any:
            context.begin_sample(100 + task)
            if task == 3:
                return OnPacking(how) if when == "packing" else dies(how)
            return task

        return work

    with pools(make, takes_context=True, name="the training set") as found:
        answers = found.map(range(20))
        assert [next(answers) for _ in range(3)] == [0, 1, 2], "what was done before is still good"
        with pytest.raises(WorkerDied) as caught:
            next(answers)
        assert of(caught.value, 1, exit_code, "sample 103 of the training set")
        assert not pids()
        assert list(found.map([7])) == [7]


@linux
@pytest.mark.parametrize("begun", [False, True])
def test_a_worker_that_is_killed_while_it_has_nothing_to_do(begun: bool) -> None:
    with pools(square) as found:
        assert numbers(found.map(range(5 if begun else 1))) == [0, 1, 4, 9, 16][: 5 if begun else 1]
        victim = pids()[0]
        number = next(n for n, one in enumerate(found._workers) if one._process.pid == victim)
        os.kill(victim, signal.SIGKILL)
        with pytest.raises(WorkerDied) as caught:
            numbers(found.map(range(5)))
        assert of(caught.value, number, -signal.SIGKILL)


@linux
def test_a_death_is_reported_where_the_answer_is_due() -> None:
    """Who passes over a step must know which one it is."""

    def work(task: int) -> int:
        if task == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return task

    with pools(work) as found:
        answers = found.map(range(20))
        assert [next(answers) for _ in range(3)] == [0, 1, 2]
        with pytest.raises(WorkerDied):
            next(answers)


def test_a_death_is_reported_soon_while_another_worker_takes_its_time() -> None:
    def work(task: int) -> None:
        if task == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(3600)

    with pools(work) as found, pytest.raises(WorkerDied) as caught:
        next(found.map(range(4)))
    assert of(caught.value, 1, -signal.SIGKILL)


@linux
def test_a_death_that_its_own_children_hide(tmp_path: Path) -> None:
    """They have open all that would tell of it."""

    def work(task: int) -> None:
        child = os.fork()
        if child == 0:
            wait_for((tmp_path / "end").exists)
            os._exit(0)
        (tmp_path / "pid").write_text(str(child))
        os.kill(os.getpid(), signal.SIGKILL)

    with pools(work, 1) as found:
        try:
            with pytest.raises(WorkerDied) as caught:
                list(found.map([0]))
            assert of(caught.value, 0, -signal.SIGKILL)
        finally:
            (tmp_path / "end").touch()
    wait_for(lambda: gone(int((tmp_path / "pid").read_text())))


@linux
def test_a_worker_whose_exit_code_is_lost() -> None:
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        try:
            with pools(lambda task: os._exit(3)) as found:
                list(found.map([0]))
        except WorkerDied as error:
            os._exit(7 if of(error, 0, None) else 8)
        os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_a_thread_that_ends_takes_its_workers_with_it() -> None:
    with pools(square) as found:
        answers = found.map(itertools.count())
        starting = threading.Thread(target=lambda: next(answers))
        starting.start()
        starting.join()
        wait_for(lambda: not any(one.is_alive for one in found._workers))
        with pytest.raises(WorkerDied) as caught:
            list(itertools.islice(answers, 50))
        assert any(of(caught.value, worker, -signal.SIGKILL, has_starter=False) for worker in range(2))


# --- silence ----------------------------------------------------------------------------------------------


def in_python(task: int) -> None:
    while True:
        signal.pause()


def in_c(task: int) -> None:
    """Holds the interpreter's lock."""
    ctypes.PyDLL(None).sleep(1000)


@linux
@pytest.mark.parametrize("hangs", [in_python, in_c])
def test_a_worker_that_hangs(hangs: Work, capsys: pytest.CaptureFixture[str]) -> None:
    def make(context: WorkerContext) -> Work:
        def work(task: int) -> Any:
            context.begin_sample(task)
            return hangs(task) if task == 1 else task

        return work

    with pools(make, takes_context=True, timeout_seconds=0.1, name="the test set") as found:
        with pytest.raises(WorkerDied) as caught:
            list(found.map(range(4)))
        assert "worker 1 (pid " in caught.value.message and caught.value.setting == "data.loader_timeout"
        assert "0.1 s" in caught.value.message and "sample 1 of the test set" in caught.value.message
        printed = capsys.readouterr().out
        assert "worker 1 (pid " in printed.splitlines()[0] and f"in {hangs.__name__}" in printed
        assert " in run_worker" not in printed and "test_a_worker_that_hangs" not in printed, (
            "the frames of the training are left out"
        )
        assert not pids()


def test_a_slow_worker_that_gets_further_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each sample begins the time anew; a batch may take as long as it does."""

    def make(context: WorkerContext) -> Work:
        def work(task: int) -> int:
            for index in range(30):
                context.begin_sample(index)
                time.sleep(0.05)
            return task

        return work

    with pools(make, 1, takes_context=True, timeout_seconds=1.0) as found:
        assert list(found.map([1])) == [1]


@linux
def test_being_stopped_for_a_while_is_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """A person presses Ctrl-Z, and goes on the next day: one look, however long it took."""
    looks = itertools.count()

    class Stopped:
        """Says each time that a day has gone by."""

        def __init__(self, real: Any) -> None:
            self.real = real

        def poll(self, ms: float) -> Any:
            return [] if next(looks) < 3 else self.real.poll()

    with pools(square, 1, timeout_seconds=5.0) as found:
        assert numbers(found.map([1])) == [1]
        found._workers[0]._poller = Stopped(found._workers[0]._poller)
        assert numbers(found.map([2])) == [4] and next(looks) >= 4


# --- beginning, and the process around it -----------------------------------------------------------------


def test_a_worker_that_hangs_at_its_beginning_is_started_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As one does that was forked while another thread held a lock."""
    begin = worker_handle.loader_worker.initialize_process

    def hang(parent: int) -> None:
        begin(parent)
        for number in range(2):
            with contextlib.suppress(FileExistsError):
                (tmp_path / str(number)).mkdir()
                signal.pause()

    monkeypatch.setattr(worker_handle.loader_worker, "initialize_process", hang)
    monkeypatch.setattr(worker_handle, "START_SECONDS", 0.2)
    with pools(square) as found:
        assert numbers(found.map(range(5))) == [0, 1, 4, 9, 16]


def test_one_that_never_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_handle.loader_worker, "initialize_process", lambda parent: signal.pause())
    for module in (worker_handle, worker_pool):
        monkeypatch.setattr(module, "START_SECONDS", 0.05)
    with pools(square, 1) as found, pytest.raises(WorkerDied, match=r"worker 0 .*0\.15 s"):
        list(found.map([1]))
    assert not pids()


def test_one_that_dies_at_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_handle.loader_worker, "initialize_process", lambda parent: os._exit(9))
    with pools(square) as found, pytest.raises(WorkerDied, match="exit code 9"):
        list(found.map([1]))
    assert not pids()


@linux
def test_beside_threads_that_print_compute_and_allocate(capfd: pytest.CaptureFixture[str]) -> None:
    """Each holds some lock at the moment of a fork; 200 starts by hand."""
    stop, log = threading.Event(), logging.getLogger("beside")
    log.propagate = False
    log.addHandler(logging.FileHandler(os.devnull))
    matrix = torch.randn(64, 64)

    def busy() -> None:
        while not stop.is_set():
            log.warning("a line")
            print("a line", flush=True)
            torch.mm(matrix, matrix).sum().item()
            bytearray(100_000)

    others = [threading.Thread(target=busy) for _ in range(4)]
    for one in others:
        one.start()
    try:
        for _ in range(8):
            with pools(lambda task: matrix @ matrix) as found:
                assert len(list(found.map(range(4)))) == 4
    finally:
        stop.set()
        for one in others:
            one.join()
        log.handlers.pop().close()


def test_in_a_thread_of_its_own() -> None:
    found: list[int] = []

    def draw() -> None:
        with pools(square) as made:
            found.extend(numbers(made.map(range(5))))

    drawing = threading.Thread(target=draw)
    drawing.start()
    drawing.join()
    assert found == [0, 1, 4, 9, 16]


def test_python_does_not_warn_of_the_fork(
    recwarn: pytest.WarningsRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From 3.12 on it does, where there are threads."""

    popen = multiprocessing.popen_fork.Popen._launch  # type: ignore[attr-defined]

    def launch(self: Any, process: Any) -> None:
        warnings.warn(
            "This process is multi-threaded, use of fork() may lead to deadlocks",
            DeprecationWarning,
            stacklevel=2,
        )
        popen(self, process)

    monkeypatch.setattr("multiprocessing.popen_fork.Popen._launch", launch)
    with pools(square) as found:
        assert numbers(found.map([2])) == [4]
    assert not recwarn.list


class Squares:
    """Can be pickled."""

    def __init__(self, context: WorkerContext) -> None:
        self.context = context

    def __call__(self, task: int) -> torch.Tensor:
        self.context.begin_sample(task)
        if task == 9:
            os._exit(5)
        return square(task)


def test_spawned(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on macOS: nothing is inherited, all is handed over."""
    monkeypatch.setattr(worker_handle, "START_METHOD", "spawn")
    with pools(Squares, 1, takes_context=True) as found:
        assert numbers(found.map(range(5))) == [0, 1, 4, 9, 16]
        with pytest.raises(WorkerDied, match=r"exit code 5 .* sample 9\b"):
            list(found.map([9]))
