"""Curves as a picture."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from roost.base.errors import NotFound, UsageError
from roost.operations.plot import plot
from tests.operations.packages import ROWS, TIMES, package

BEGINS = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}


@pytest.mark.parametrize("kind", BEGINS)
def test_draws_a_file_of_each_kind(tmp_path: Path, kind: str) -> None:
    made = package(tmp_path / "runs")
    drawn = plot([made.path], output=tmp_path / f"curves.{kind}")
    assert (tmp_path / f"curves.{kind}").read_bytes().startswith(BEGINS[kind])
    assert drawn.panels == ["loss", "lr"]


def test_says_what_it_leaves_out(tmp_path: Path) -> None:
    made = [package(tmp_path / "runs", "good"), package(tmp_path / "runs", "bad", state="new")]
    drawn = plot([one.path for one in made], output=tmp_path / "a.svg")
    assert drawn.left_out == ["bad"] and drawn.panels == ["loss", "lr"]


def test_several_with_all_marks(tmp_path: Path) -> None:
    rows = [
        *ROWS,
        {"step": 40, "epoch": 4, "train/loss": math.nan, "valid/clean/loss": 1.0, "valid/loss": 1.0},
    ]
    made = [package(tmp_path / "runs", name, rows=rows) for name in ("a", "b")]
    output = tmp_path / "both.png"
    plot([one.path for one in made], output=output)
    assert output.stat().st_size > 10_000


def test_only_what_is_named(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", rows=[{**row, **TIMES} for row in ROWS])
    other = package(tmp_path / "runs", "other")
    drawn = plot([made.path, other.path], output=tmp_path / "a.svg", names=["perf/forward_ms", "perf/host*"])
    assert drawn.panels == ["perf/forward_ms", "perf/host_mb"] and drawn.left_out == ["other"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("perf", r"did you mean 'perf/\*'\?"),
        ("valid/los", r"did you mean valid/loss\?"),
        ("zzz/*", "there are: train/loss, valid/loss"),
    ],
)
def test_a_name_that_nothing_has(tmp_path: Path, name: str, said: str) -> None:
    with pytest.raises(NotFound, match=f"(?s){re.escape(name)}.*{said}"):
        made = package(tmp_path / "runs", rows=[{**row, **TIMES} for row in ROWS])
        plot([made.path], output=tmp_path / "a.svg", names=["loss", name])
    assert not (tmp_path / "a.svg").exists()


@pytest.mark.parametrize("name", ["curves", "curves.gif"])
def test_an_ending_that_tells_no_kind(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match=r"\.png"):
        plot([package(tmp_path / "runs").path], output=tmp_path / name)


def test_what_is_not_there(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", state="new")
    for packages, output in (
        ([tmp_path], tmp_path / "a.png"),
        ([made.path], tmp_path / "a.png"),
        ([made.path], tmp_path / "nowhere" / "a.png"),
    ):
        with pytest.raises(NotFound):
            plot(packages, output=output)
    assert not (tmp_path / "a.png").exists()
