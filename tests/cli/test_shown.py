"""One package, drawn for a person."""

from __future__ import annotations

import json
from pathlib import Path

import click

from roost.analysis import folder
from roost.cli.shown import lines
from roost.operations.show import show
from tests.operations.packages import VALUES, package


def text(path: Path) -> str:
    return click.unstyle("\n".join(lines(show(path))))


def test_everything_has_its_place(tmp_path: Path) -> None:
    shown = text(package(tmp_path / "runs", state="failed", error="ValueError: \x1b[2J", exit_code=1).path)
    places = ["runs/one  failed", "a test", "step 30/30", "sessions", "checkpoints", "fast best", "newest"]
    places += ["valid/loss", "optimizers.main.lr", "_output.txt", "error: ValueError: \\x1b[2J"]
    for said in places:
        assert said in shown
    assert "\x1b[2J" not in shown


def test_values_are_shown_as_they_are(tmp_path: Path) -> None:
    values = {**VALUES, "mine": {"list": [1, [2]], "text": "[bold]x[/bold]", "none": None, "empty": {}}}
    shown = text(package(tmp_path / "runs", values=values).path)
    assert all(said in shown for said in ("[1,[2]]", "[bold]x[/bold]", "null", "{}"))


def test_analyses_have_a_line_each(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    for asked in ({"checkpoint": 1}, {"untrained": True}):
        place = folder.make(made.path / folder.NAME)
        folder.write_request(place, {"script": {"path": "/home/me/lo\x1b[2Jok.py"}, **asked})
        (place / folder.RECORD).write_text(json.dumps({"state": "succeeded", "seconds": 2.0}))
    lines = [line.split() for line in text(made.path).splitlines() if "ok.py" in line]
    assert lines == [
        ["1", "succeeded", "lo\\x1b[2Jok.py", "1", "2.0s"],
        ["2", "succeeded", "lo\\x1b[2Jok.py", "untrained", "2.0s"],
    ]
    assert "\x1b[2J" not in text(made.path)


def test_what_is_empty_is_left_out(tmp_path: Path) -> None:
    shown = text(package(tmp_path / "runs", state="new").path)
    assert "checkpoints" not in shown and "inexact" not in shown and "new" in shown


def test_a_name_with_brackets(tmp_path: Path) -> None:
    assert "runs/[red]x" in text(package(tmp_path / "runs", "[red]x").path)
