"""The line of progress on a terminal."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from roost.cli import count_line
from roost.cli.count_line import CountLine
from tests.cli.programs import Terminal
from tests.operations.packages import package


def test_it_is_drawn_after_a_second_and_removed_at_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 100.0
    monkeypatch.setattr(count_line.time, "monotonic", lambda: now)
    monkeypatch.setattr(count_line.terminal, "can_draw", lambda stream: True)
    line = CountLine()
    line("reading", 0, 5000)
    now += 0.9
    line("reading", 10, 5000)
    assert capsys.readouterr().err == ""
    now += 0.2
    line("reading", 1200, 5000)
    line("reading", 1201, 5000)
    assert capsys.readouterr().err == "\r\x1b[Kreading: 1,200 of 5,000"
    line("reading", 5000, 5000)
    assert capsys.readouterr().err == "\r\x1b[K"
    line("moving", 0, 3)
    line.remove()
    assert capsys.readouterr().err == "", "it was not shown"


def test_nothing_is_drawn_where_lines_cannot_be_redrawn(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(count_line, "_QUIET_SECONDS", 0.0)
    monkeypatch.setattr(count_line.terminal, "can_draw", lambda stream: False)
    line = CountLine()
    line("reading", 0, 2)
    line("reading", 1, 2)
    assert capsys.readouterr().err == ""


def test_commands_show_it(tmp_path: Path) -> None:
    for name in ("a", "b"):
        package(tmp_path / "runs", name, checkpoints=False)
    code = (
        "import roost.cli.count_line as line; line._QUIET_SECONDS = 0; "
        "from roost.cli.__main__ import main; main()"
    )
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    shown = Terminal("ls", cwd=tmp_path, program=[sys.executable, "-c", code], **cache)
    status, text = shown.end()
    assert status == 0 and "\rreading" in text.replace("\x1b[K", "") and "a  " in text
