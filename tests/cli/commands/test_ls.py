"""`roost ls`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click
import pytest

from roost.lab import ticket
from tests.cli.programs import Terminal, roost
from tests.lab import queued
from tests.operations.packages import ROWS, VALUES, package, session


def test_a_table(tmp_path: Path) -> None:
    package(tmp_path / "runs", "first")
    made = package(tmp_path / "runs", "second", state="stopped")
    session(made, "failed", error="ValueError: " + "long " * 30)
    said = roost("ls", cwd=tmp_path)
    header, first, second = said.stdout.splitlines()
    assert header.split()[:4] == ["NAME", "STATE", "STEP", "EPOCH"]
    assert first.split()[:3] == ["first", "succeeded", "30/30"] and "a test" in first and "0.75" in first
    assert "failed" in second and "ValueError: long" in second and second.endswith("…")


def test_colours_on_a_terminal_only(tmp_path: Path) -> None:
    package(tmp_path / "runs")
    for no_color, coloured in (("1", False), ("", True)):
        code, shown = Terminal("ls", tmp_path, NO_COLOR=no_color).end()
        assert code == 0 and ("\x1b[32m" in shown) == coloured
    assert "\x1b" not in roost("ls", tmp_path, NO_COLOR="").stdout


def shown(folder: Path, width: int) -> list[str]:
    """The lines on a terminal of this width."""
    terminal = Terminal("ls", folder, NO_COLOR="", COLUMNS=str(width))
    code, text = terminal.end()
    assert code == 0
    return click.unstyle(text).splitlines()


@pytest.mark.parametrize(
    ("width", "names"),
    [
        (123, "NAME STATE STEP EPOCH METRIC LAST BEST STARTED TIME SESSIONS ABOUT"),
        (122, "NAME STATE STEP METRIC LAST BEST STARTED TIME SESSIONS ABOUT"),
        (115, "NAME STATE STEP METRIC LAST BEST STARTED TIME ABOUT"),
        (100, "NAME STATE STEP METRIC LAST STARTED TIME ABOUT"),
        (99, "NAME STATE STEP STARTED TIME ABOUT"),
        (64, "NAME STATE STEP TIME ABOUT"),
    ],
)
def test_columns_go_where_the_terminal_is_narrow(tmp_path: Path, width: int, names: str) -> None:
    package(tmp_path / "runs", "2026-07-01_12-00-00_481", state="failed", error="the disk is full")
    header, row = shown(tmp_path / "runs", width)
    assert header.split() == names.split()
    assert row.endswith("the disk is full") and len(row) <= width


def test_what_does_not_fit_even_then_is_cut(tmp_path: Path) -> None:
    package(tmp_path / "runs", "2026-07-01_12-00-00_481", state="failed", error="the disk is full")
    _, row = shown(tmp_path / "runs", 60)
    assert len(row) == 60 and row.endswith("the disk is…")


def test_json(tmp_path: Path) -> None:
    package(tmp_path / "runs")
    (row,) = json.loads(roost("ls", tmp_path / "runs", "--json").stdout)
    assert row["name"] == "one" and row["state"] == "succeeded" and row["best"] == 0.5


def test_no_packages(tmp_path: Path) -> None:
    said = roost("ls", tmp_path)
    assert said.returncode == 0 and said.stdout == "" and "no packages" in said.stderr
    assert json.loads(roost("ls", tmp_path, "--json").stdout) == []


def test_mean_and_deviation_over_the_seeds_of_a_sweep(tmp_path: Path) -> None:
    for seed in range(3):
        rows = [{**one, "valid/loss": one["valid/loss"] + seed} for one in ROWS]
        made = package(tmp_path / "runs", f"lr=1 seed={seed}", rows=rows, values={**VALUES, "seed": seed})
        ticket.write(queued.task(package=str(made.path), array="7sweep"))
    *table, empty, header, over = roost("ls", cwd=tmp_path).stdout.splitlines()
    assert len(table) == 4 and not empty
    assert header.split() == ["OVER", "SEEDS", "RUNS", "METRIC", "LAST", "BEST"]
    assert re.split(" {2,}", over) == ["lr=1 seed=*", "3", "valid/loss", "1.75 ± 1", "1.5 ± 1"]
