from __future__ import annotations

import os
import pty
import sys
from dataclasses import dataclass

import click
import pytest

from roost.cli import wait_progress
from roost.cli.wait_progress import LoggedStageScreen, StageScreen, format_unfinished
from tests.messages import Messages


@dataclass(frozen=True)
class Came:
    """How a check ended."""

    state: str = "failed"
    failed: str | None = "save"
    error: str | None = "bad"
    reason: str | None = "exception"


@pytest.mark.parametrize(
    ("came", "is_printed"),
    [
        (Came(), True),
        (Came(), False),
        (Came("crashed", "data", "killed by SIGKILL"), False),
        (Came("crashed", None, None, None), False),
        (Came("stopped", "data"), False),
    ],
)
def test_format_unfinished(came: Came, is_printed: bool, messages: Messages) -> None:
    text = click.unstyle(format_unfinished(came, is_printed=is_printed, what="check"))
    place, _, why = text.partition(": ")
    assert place.startswith(came.state) and place.endswith(came.failed or came.state)
    assert bool(why) != is_printed and (came.state == "stopped" or is_printed or (came.error or "") in why)
    messages.check(text)


def test_a_terminal_shows_the_current_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    ours, theirs = pty.openpty()
    now = [10.0]
    with os.fdopen(ours, "rb", buffering=0) as terminal, os.fdopen(theirs, "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setattr(wait_progress, "monotonic", lambda: now[0])
        stages = iter(["train", "not so soon"])
        screen = StageScreen(lambda: next(stages))
        screen.tick()
        now[0] = 12.5
        screen.tick()
        screen.tick()
        screen.write(b"done\n")
        screen.tick()
        screen.close()
        seen = b""
        while not seen.endswith(b"\n"):  # the kernel hands it over in pieces
            seen += terminal.read(1000)
        assert seen == b"\r\x1b[Ktrain \xe2\x80\xa6 2 s\r\x1b[Kdone\r\n"
        monkeypatch.undo()


def test_a_pipe_gets_plain_lines(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = [10.0]
    monkeypatch.setattr(wait_progress, "monotonic", lambda: now[0])
    screen = StageScreen(lambda: "train")
    now[0] = 20.0
    screen.tick()
    screen.write(b"done\n")
    screen.close()
    out, err = capfd.readouterr()
    assert (out, err) == ("", "done\n")


def test_where_nothing_can_be_drawn_a_line_comes_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr(wait_progress, "monotonic", lambda: now[0])
    screen = LoggedStageScreen(lambda: f"at {now[0]:g}")
    for second in (1.0, 9.0, 11.0, 12.0, 22.0):
        now[0] = second
        screen.tick()
    screen.close()
    assert capfd.readouterr().err == "at 11\nat 22\n"
