from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from roost.train.mirrors.sink import Sink, SinkPosition
from roost.train.mirrors.sink_retry import RetryingFeed
from tests.messages import Messages
from tests.train.mirrors.recorded import Log, folded, session


class Clock:
    """A clock that the test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def retrying_feed(package: Path, make: Callable[[], Sink], clock: Clock) -> RetryingFeed:
    return RetryingFeed(package, "log", make, package / "mirrors" / "log.json", clock)


def test_a_failure_is_said_once_tried_again_and_made_good(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], messages: Messages
) -> None:
    writer, clock, made = session(tmp_path, 1, 0, [1, 2]), Clock(), []
    broken = True

    def make() -> Sink:
        made.append(Log())
        made[-1].error = ConnectionError("no one\nthere \x1b[2J") if broken else None
        return made[-1]

    retrying = retrying_feed(tmp_path, make, clock)
    retrying.send_new()
    retrying.send_new()
    assert len(made) == 1, "not at once"
    for delay in (1.0, 2.0, 4.0):
        clock.now += delay
        retrying.send_new()
    assert len(made) == 4 and made[0].calls[-1] == "close None"
    out = capsys.readouterr().out
    assert out.startswith("mirror log: ConnectionError: no one there \\x1b[2J; ") and out.count("\n") == 1
    messages.check(out)
    broken = False
    writer.row(3, 0, {"train/loss": 1.0})
    clock.now += 8.0
    retrying.send_new()
    out = capsys.readouterr().out
    assert out.startswith("mirror log: ") and "3 rows" in out and out.count("\n") == 1
    messages.check(out)
    retrying.finish("finished")
    assert made[-1].values == folded(tmp_path) and made[-1].calls[-1] == "close finished"


def test_it_waits_a_minute_at_most(tmp_path: Path) -> None:
    clock, tries = Clock(), []

    def make() -> Sink:
        tries.append(clock.now)
        raise OSError("no")

    retrying = retrying_feed(tmp_path, make, clock)
    for _ in range(600):
        retrying.send_new()
        clock.now += 1.0
    assert {after - before for before, after in pairwise(tries[7:])} == {60.0}


def test_the_end_tries_once_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], messages: Messages
) -> None:
    session(tmp_path, 1, 0, [1])
    sinks = [Log(), Log(), Log()]
    sinks[0].error = sinks[1].error = OSError("no")
    retrying = retrying_feed(tmp_path, lambda: sinks.pop(0), Clock())
    retrying.send_new()
    retrying.finish("stopped")
    messages.check(capsys.readouterr().out)
    retrying.finish("stopped")
    assert sinks == []


def test_two_processes_never_write_one_mirror(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], messages: Messages
) -> None:
    session(tmp_path, 1, 0, [1])
    (tmp_path / "mirrors").mkdir()
    other = os.open(tmp_path / "mirrors" / "log.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(other, fcntl.LOCK_EX)
    clock, sink = Clock(), Log(held=SinkPosition())
    retrying = retrying_feed(tmp_path, lambda: sink, clock)
    retrying.send_new()
    out = capsys.readouterr().out
    assert out.startswith("mirror log: ") and not sink.rows
    messages.check(out)
    os.close(other)
    clock.now += 1.0
    retrying.send_new()
    assert sink.steps == [1]
