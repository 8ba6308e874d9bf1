from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from roost.package.live_progress import ProgressFile
from roost.supervisor.monitoring.process_stacks import ProcessSample
from roost.supervisor.monitoring.stall_watch import (
    StallWatch,
    append_stacks,
    describe_stall,
    format_stall,
    stall_as_json,
)
from tests.messages import Messages


class Run:
    """A board and an output, and a clock that the test moves."""

    def __init__(self, folder: Path) -> None:
        self.board, self.output = folder / "progress", folder / "out"
        self.fd = os.open(self.output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.watch = StallWatch(str(self.board), [self.fd], 10.0, now=0.0)
        self.now = 0.0

    def after(self, seconds: float, *, tick: float = 1.0) -> list[bool]:
        found = []
        for _ in range(round(seconds / tick)):
            self.now += tick
            found.append(self.watch.check(self.now))
        return found


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    run = Run(tmp_path)
    yield run
    os.close(run.fd)


def publish(board: ProgressFile, step: int) -> None:
    board.publish(step, 0, 0, 1, 0, 0, 0, 0.0, 0.0, 0.0)


def test_it_is_reported_once_and_again_after_progress(run: Run) -> None:
    assert not any(run.after(9))
    assert run.after(20).count(True) == 1
    board = ProgressFile(run.board)
    publish(board, 1)
    assert not any(run.after(10))
    assert run.after(20).count(True) == 1
    os.write(run.fd, b"x")
    assert not any(run.after(10))
    assert run.after(20).count(True) == 1


def test_either_is_progress(run: Run) -> None:
    board = ProgressFile(run.board)
    for step in range(10):
        publish(board, step)
        assert not any(run.after(8))
        os.write(run.fd, b"x")
        assert not any(run.after(8))


def test_one_rank_that_works_on_is_progress(run: Run) -> None:
    """Of an evaluation, whose ranks end one after the other."""
    board = ProgressFile(run.board, record=200)
    for step in range(3):
        publish(board, step)
        assert not any(run.after(8))


def test_a_suspended_machine_has_not_stalled(run: Run) -> None:
    """Nor a supervisor that was paused with its run: a jump of the clock counts as one tick."""
    assert not any(run.after(3600 * 1, tick=3600))
    assert not any(run.after(3))


def test_our_own_words_are_no_progress(run: Run) -> None:
    run.after(11)
    os.write(run.fd, b"roost: no step and no output\n")
    run.watch.skip_own_output()
    assert not any(run.after(30))
    os.write(run.fd, b"x")
    assert run.after(30).count(True) == 1


def test_a_board_that_is_no_file(tmp_path: Path) -> None:
    fd = os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT)
    watch = StallWatch(str(tmp_path), [fd], 1.0, now=0.0)
    assert not watch.check(0.0)
    os.close(fd)


def test_what_is_written_down(tmp_path: Path, messages: Messages) -> None:
    board = ProgressFile(tmp_path / "progress")
    publish(board, 7)
    looks = [
        ProcessSample(10, "python", "T", "", b""),
        ProcessSample(11, "loader \N{SNOWMAN}", "S", "futex_wait", b"Thread 1:\n  File x\n"),
    ]
    stall = describe_stall(
        looks,
        workers=[10],
        progress_file=str(tmp_path / "progress"),
        idle_seconds=1800.04,
        stacks=str(tmp_path / "stalls.txt"),
    )
    assert stall.stopped
    append_stacks(stall, looks)
    append_stacks(stall, looks)
    text = (tmp_path / "stalls.txt").read_text()
    assert text.count("step 7, training") == text.count("1800 s") == 2
    assert text.count("--- process 10 (python), state T\n") == 2
    assert (
        "--- process 11 (loader \N{SNOWMAN}), state S" in text and "futex_wait\nThread 1:\n  File x\n" in text
    )
    messages.check(re.sub(r" [+-]\d{4},", " <zone>,", text))
    said = stall_as_json(stall)
    assert said["stacks"] == "stalls.txt"
    assert (said["step"], said["phase"], said["processes"]) == (7, "training", 2)
    messages.check(format_stall(stall))
    assert "stalls.txt" not in format_stall(stall._replace(stacks=""))


def test_without_a_board(tmp_path: Path) -> None:
    stall = describe_stall([], workers=[1], progress_file="", idle_seconds=1.0, stacks="")
    assert (stall.step, stall.phase, stall.stopped) == (None, None, False)
