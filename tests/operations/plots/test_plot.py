"""Curves as a picture."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from roost.base.errors import NotFound, Refused, UsageError
from roost.operations import work_progress
from roost.operations.plots import plot as plot_operation
from roost.operations.plots import plot_panels
from roost.operations.plots.plot import PlotResult, follow, plot, plot_settings, read_curves
from roost.operations.plots.setting_points import read_points
from tests.messages import Messages
from tests.operations.packages import ROWS, TIMES, package, record_rows, session

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
    ("name", "there"),
    [
        ("perf", "'perf/*'"),
        ("valid/los", "valid/loss"),
        ("vald/*", "mean valid/*"),
        ("zzz/*", "train/loss, valid/loss"),
    ],
)
def test_a_name_that_nothing_has(tmp_path: Path, name: str, there: str, messages: Messages) -> None:
    with pytest.raises(NotFound) as refused:
        made = package(tmp_path / "runs", rows=[{**row, **TIMES} for row in ROWS])
        plot([made.path], output=tmp_path / "a.svg", names=["loss", name])
    assert refused.value.setting == "-m" and repr(name) in refused.value.detail
    assert there in str(refused.value.fix)
    messages.check(refused.value)
    assert not (tmp_path / "a.svg").exists()


@pytest.mark.parametrize("name", ["curves", "curves.gif"])
def test_an_ending_that_tells_no_kind(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match=r"\.png") as refused:
        plot([package(tmp_path / "runs").path], output=tmp_path / name)
    assert refused.value.setting == "-o"


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


# --- other files ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", BEGINS)
def test_a_picture_of_its_own_is_replaced(tmp_path: Path, kind: str) -> None:
    made, output = package(tmp_path / "runs"), tmp_path / f"curves.{kind}"
    plot([made.path], output=output)
    before = output.stat().st_ino
    plot([made.path], output=output, names=["lr"])
    assert output.stat().st_ino != before
    output.write_bytes(b"")  # of `mktemp`: there is nothing to lose
    plot([made.path], output=output)


def test_a_file_of_another_origin_is_kept(tmp_path: Path, messages: Messages) -> None:
    made, output = package(tmp_path / "runs"), tmp_path / "photo.png"
    figure = Figure()
    figure.subplots().plot([1, 2])
    figure.savefig(output)
    before = output.read_bytes()
    for call in (
        lambda: plot([made.path], output=output),
        lambda: list(follow([made.path], output=output)),
        lambda: plot_settings([], read_points([made.path], ["max_epochs"]), kind="scatter", output=output),
    ):
        with pytest.raises(Refused) as refused:
            call()
        assert refused.value.setting == "-o" and output.read_bytes() == before
    messages.check(refused.value)
    plot([made.path], output=output, overwrite=True)
    assert output.read_bytes() != before


def test_a_folder_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "a.png").mkdir()
    with pytest.raises(Refused):
        plot([package(tmp_path / "runs").path], output=tmp_path / "a.png")


def test_what_is_read_is_reported(tmp_path: Path) -> None:
    made = [package(tmp_path / "runs", name).path for name in ("a", "b")]
    seen: list[tuple[str, int, int]] = []
    with work_progress.shown_by(lambda *report: seen.append(report)):
        picture, damaged = read_curves(made)
    assert [one for one in seen if one[0] == "reading runs"] == [("reading runs", n, 2) for n in range(3)]
    assert damaged == []
    assert [panel.name for panel in picture.panels] == ["loss", "lr"] and picture.last_step == 30


def test_a_name_among_very_many(tmp_path: Path) -> None:
    row = {"step": 1, "epoch": 0, **{f"train/m{n}": 1.0 for n in range(12_000)}}
    made = package(tmp_path / "runs", rows=[row], checkpoints=False)
    with pytest.raises(NotFound) as refused:
        read_curves([made.path], names=["zzz"])
    assert "and 11,980 more" in str(refused.value) and len(str(refused.value)) < 600
    with pytest.raises(UsageError, match="12,000 panels"):
        read_curves([made.path])


# --- following --------------------------------------------------------------------------------------------


def test_it_is_drawn_anew_when_something_came_and_once_more_at_the_end(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", state="running", rows=ROWS[:1], checkpoints=False)
    output = tmp_path / "a.svg"
    pictures = follow([made.path], output=output, every_seconds=0.01)
    first = next(pictures)
    assert isinstance(first, PlotResult) and first.step == 10
    before = output.read_bytes()
    record_rows(made, 2, 10, ROWS[1:2])
    second = next(pictures)
    assert isinstance(second, PlotResult) and second.step == 20 and output.read_bytes() != before
    record_rows(made, 3, 20, ROWS[2:])
    session(made, "succeeded")
    assert [one.step for one in pictures if isinstance(one, PlotResult)] == [30]
    assert [path.name for path in tmp_path.glob("*a.svg*")] == ["a.svg"]


def test_it_waits_for_the_first_row(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", state="running", rows=[], checkpoints=False)
    pictures = follow([made.path], output=tmp_path / "a.svg", every_seconds=0.01)
    assert next(pictures) == ["one"] and not (tmp_path / "a.svg").exists()
    record_rows(made, 2, 0, ROWS)
    drawn = next(pictures)
    assert isinstance(drawn, PlotResult) and drawn.step == 30


def test_what_has_ended_is_drawn_once(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    assert len(list(follow([made.path], output=tmp_path / "a.png"))) == 1


def test_what_ended_without_a_row(tmp_path: Path, messages: Messages) -> None:
    made = package(tmp_path / "runs", state="failed", rows=[], checkpoints=False)
    with pytest.raises(NotFound) as refused:
        list(follow([made.path], output=tmp_path / "a.png"))
    assert "'one'" in str(refused.value)
    messages.check(refused.value)
    ended = package(tmp_path / "runs", "two")
    with pytest.raises(NotFound) as refused:
        list(follow([ended.path], output=tmp_path / "a.png", names=["valid/los"]))
    assert refused.value.setting == "-m"
    assert "valid/loss" in str(refused.value)
    with pytest.raises(UsageError, match=r"\.png") as refused:
        next(follow([ended.path], output=tmp_path / "a"))
    assert refused.value.setting == "-o"


def test_more_panels_than_a_picture_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    monkeypatch.setattr(plot_panels, "MAX_PANELS", 1)
    made = package(tmp_path / "runs")
    with pytest.raises(UsageError, match="2 panels") as refused:
        plot_operation.plot([made.path], output=tmp_path / "a.png")
    messages.check(refused.value)
    plot_operation.plot([made.path], output=tmp_path / "a.png", names=["loss"])
