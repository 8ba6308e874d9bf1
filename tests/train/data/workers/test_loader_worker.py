from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from roost.base.errors import ContractError
from roost.train.data.workers.worker_status import WorkerContext
from tests.messages import Messages
from tests.train.data.pools import OnPacking, Work, linux, numbers, pids, pools, square

# --- exceptions -------------------------------------------------------------------------------------------


class OfTwo(Exception):
    """Is made of something else than it keeps."""

    def __init__(self, path: str, *, code: int) -> None:
        super().__init__(f"cannot read {path}")
        self.path, self.code = path, code


def raises(error: Callable[[], Exception]) -> Exception:
    def work(task: int) -> int:
        if task == 2:
            raise error()
        return task

    with pools(work) as found:
        answers = found.map(range(9))
        assert [next(answers), next(answers)] == [0, 1]
        with pytest.raises(Exception) as caught:
            next(answers)
        return caught.value


def test_an_error_comes_as_itself() -> None:
    error = raises(lambda: OfTwo("x.png", code=3))
    assert isinstance(error, OfTwo) and str(error) == "cannot read x.png"
    assert (error.path, error.code) == ("x.png", 3)
    place, _, cause = str(error.__cause__).partition("\n")
    assert "worker 0" in place and cause.startswith("Traceback") and "raise error()" in cause
    key = raises(lambda: KeyError("a"))
    assert type(key) is KeyError and key.args == ("a",)
    sent = ContractError("no", setting="data.x", received=3, where="c.yaml:1", fix="do")
    ours = raises(lambda: sent)
    assert isinstance(ours, ContractError) and str(ours) == str(sent)
    assert (ours.message, ours.setting, ours.where, ours.fix) == ("no", "data.x", "c.yaml:1", "do")


def test_a_stop_iteration_does_not_end_the_run_in_silence() -> None:
    error = raises(lambda: StopIteration("a"))
    assert isinstance(error, RuntimeError) and isinstance(error.__cause__, StopIteration)


def test_what_make_raises_comes_too() -> None:
    def make(context: WorkerContext) -> Work:
        raise OSError(2, "no such file", "x")

    with pools(make, takes_context=True) as found, pytest.raises(FileNotFoundError, match="no such file"):
        list(found.map([1]))


def test_an_answer_that_cannot_be_sent(messages: Messages) -> None:
    with pools(lambda task: lambda: task) as found, pytest.raises(Exception, match="pickle") as caught:
        list(found.map([1]))
    messages.check(caught.value.__notes__[0])


@pytest.mark.parametrize("where", ["reading", "packing"])
def test_a_worker_without_memory_says_so(where: str) -> None:
    def work(task: int) -> Any:
        if where == "packing":
            return OnPacking("MemoryError")
        raise MemoryError

    with pools(work) as found, pytest.raises(MemoryError):
        list(found.map([1]))


def test_an_error_that_is_larger_than_a_slot() -> None:
    error = raises(lambda: ValueError("x" * 500_000))
    assert len(str(error)) == 500_000


# --- signals ------------------------------------------------------------------------------------------------


@linux
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_signals_for_training_leave_the_workers_alone(number: signal.Signals) -> None:
    """A shell, Slurm and systemd send them to everybody."""
    with pools(square) as found:
        answers = found.map(range(60))
        assert int(next(answers)[0]) == 0
        for pid in pids():
            os.kill(pid, number)
        with closing(answers):
            assert numbers(answers) == [n * n for n in range(1, 60)]
