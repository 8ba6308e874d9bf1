"""How it is drawn: what a reader must find in the picture, read from the SVG."""

from __future__ import annotations

import re
import struct
from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
import pytest

from roost.operations.plots import plot_drawing
from roost.operations.plots.plot_drawing import draw
from roost.operations.plots.plot_panels import PackageMarks, build_picture
from tests.messages import Messages
from tests.operations.packages import ROWS, TIMES, package, record_rows, session


def texts(svg: bytes) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]+)</text>", svg.decode())


def test_one_package(tmp_path: Path, messages: Messages) -> None:
    made = package(tmp_path / "runs", state="stopped")
    session(made, "succeeded")
    record_rows(made, 2, 30, [{"step": 40, "epoch": 4, "train/loss": float("nan"), "train/accuracy": 1.0}])
    with mpl.rc_context({"svg.fonttype": "none"}):
        found = texts(draw(build_picture([made]), "svg"))
    assert {"loss", "accuracy", "lr", "step", "epoch", "train", "valid", "test"} <= set(found)
    messages.check(", ".join(text for text in found if text[0].isalpha()))


def test_several_packages_are_told_apart_by_name(tmp_path: Path) -> None:
    made = [package(tmp_path / "runs", name) for name in ("first", "second")]
    with mpl.rc_context({"svg.fonttype": "none"}):
        found = texts(draw(build_picture(made), "svg"))
    assert {"first", "second", "train", "valid"} <= set(found)


def test_long_names_leave_room_for_the_curves(tmp_path: Path) -> None:
    made = [
        package(tmp_path / "runs", f"{i} a rather long description of what was tried here") for i in range(9)
    ]
    few, many = (size(draw(build_picture(packages), "png")) for packages in (made[:2], made))
    assert few[0] == many[0] and many[1] - few[1] > 50, "as high as the panels and the legend together"


@pytest.mark.parametrize("panels", [1, 4])
def test_as_many_names_as_one_may_have_runs(tmp_path: Path, panels: int) -> None:
    """Squeezed panels warn, which pytest makes an error."""
    row = {"step": 1, "epoch": 0, "valid/loss": 1.0, **{f"train/metric{i}": 1.0 for i in range(panels - 1)}}
    made = [package(tmp_path / "runs", f"{'x' * 110}-{i}", rows=[row]) for i in range(40)]
    width, height = size(draw(build_picture(made), "png"))
    assert height > 150 * 40 * 0.12 and width >= 150 * 5


@pytest.mark.parametrize("panels", [2, 4])
def test_without_a_best_checkpoint_the_panels_keep_their_size(panels: int, tmp_path: Path) -> None:
    """Squeezed panels warn, which pytest makes an error."""
    row = {"step": 1, "epoch": 0, "valid/loss": 1.0, **{f"train/metric{i}": 1.0 for i in range(panels - 1)}}
    run = PackageMarks("a", checkpoints=[], best=[], session_starts=[], steps_per_epoch=3)
    drawn = build_picture([package(tmp_path / "runs", rows=[row])])
    assert draw(replace(drawn, runs=[run]), "png").startswith(b"\x89PNG")
    run = replace(run, checkpoints=[1, 2])
    assert draw(replace(drawn, runs=[run]), "png").startswith(b"\x89PNG")


@pytest.mark.parametrize("runs", [1, 2])
def test_learning_rates_of_several_optimizers_are_told_apart(runs: int, tmp_path: Path) -> None:
    rows = [{"step": n, "epoch": 0, "valid/loss": 1.0, "lr": 0.1, "lr/head": 0.2} for n in (1, 2)]
    made = [package(tmp_path / "runs", f"run {number}", rows=rows) for number in range(runs)]
    with mpl.rc_context({"svg.fonttype": "none"}):
        found = texts(draw(build_picture(made), "svg"))
    assert found.count("lr/head") == 1 and found.count("lr") == 2, "the panel's title, and the legend"


@pytest.mark.parametrize("tested", [[], ["test/ema/loss", "test/loss"]])
def test_a_set_or_average_has_one_colour_and_line_in_the_panels_and_in_the_legend(
    tested: list[str], tmp_path: Path
) -> None:
    measured = ["valid/loss", "valid/ema/loss", "valid/swa/loss", "valid/accuracy", "valid/swa/accuracy"]
    rows = [{"step": n, "epoch": 0, **dict.fromkeys([*measured, *tested], 1.0 / n)} for n in (1, 2)]
    with mpl.rc_context({"svg.fonttype": "none"}):
        svg = draw(build_picture([package(tmp_path / "runs", rows=rows)]), "svg").decode()
    assert {"valid", "valid/ema", "valid/swa"} <= set(texts(svg.encode()))
    dashes = r"(?:stroke-dasharray: [^;]+; stroke-dashoffset: 0; )?"
    lines = re.findall(rf"fill: none; ({dashes}stroke: #\w+); stroke-width: 1\.8", svg)
    drawn = {look: lines.count(look) for look in lines}
    assert sorted(drawn.values()) == [2, 3, 3], "one, or two panels, and each once in the legend"


def size(png: bytes) -> tuple[int, int]:
    """Pixels across and down."""
    width, height = struct.unpack(">II", png[16:24])
    return width, height


def test_long_names_are_shortened_and_stay_apart(tmp_path: Path) -> None:
    made = [package(tmp_path / "runs", f"{'a' * 50}{i}{'z' * 50}") for i in range(2)]
    with mpl.rc_context({"svg.fonttype": "none"}):
        found = texts(draw(build_picture(made), "svg"))
    assert {f"{number}: {'a' * 30}…{'z' * 29}" for number in (1, 2)} <= set(found)


def test_strange_names_are_harmless(tmp_path: Path) -> None:
    """Each of these made matplotlib warn, or fail."""
    names = ["\x1b[31mred", "two\nlines", "_hidden", "$x^{$", "\u6f22\u5b57"]
    made = [package(tmp_path / "runs", name) for name in names]
    with mpl.rc_context({"svg.fonttype": "none"}):
        found = texts(draw(build_picture(made), "svg"))
    assert {r"\x1b[31mred", "two lines", "_hidden", "$x^{$", "\u6f22\u5b57"} <= set(found)
    assert draw(build_picture(made), "png").startswith(b"\x89PNG")


def test_strange_metrics_are_harmless(tmp_path: Path) -> None:
    row = {"step": 1, "epoch": 0, "valid/loss": 1.0, "valid/\x1b$a/$b\x07$": 1.0}
    assert draw(build_picture([package(tmp_path / "runs", rows=[row])]), "png").startswith(b"\x89PNG")


def test_many_panels_and_a_single_point(tmp_path: Path) -> None:
    row = {**ROWS[0], **{f"train/metric{i}": float(i) for i in range(7)}}
    assert draw(build_picture([package(tmp_path / "runs", rows=[row])]), "png").startswith(b"\x89PNG")


def test_times(tmp_path: Path) -> None:
    made = [package(tmp_path / "runs", name, rows=[{**row, **TIMES} for row in ROWS]) for name in ("a", "b")]
    with mpl.rc_context({"svg.fonttype": "none"}):
        found = texts(draw(build_picture(made, ["perf/*"]), "svg"))
    assert {"perf/data_ms", "perf/samples_per_second", "a", "b"} <= set(found)


def test_the_same_picture_every_time(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    assert draw(build_picture([made]), "png") == draw(build_picture([made]), "png")


SETS = ["clean", "noisy", "ema/clean", "ema/noisy", "swa/clean", "swa/noisy"]


def looks(svg: str) -> list[str]:
    """Of each line of a validation: its dashes and its colour."""
    dashes = r"(?:stroke-dasharray: [^;]+; stroke-dashoffset: 0; )?"
    return re.findall(rf"fill: none; ({dashes}stroke: #\w+); stroke-width: 1\.8", svg)


@pytest.mark.parametrize("runs", [1, 2])
def test_as_many_lines_as_two_sets_and_two_averages_need(runs: int, tmp_path: Path) -> None:
    values = ["valid/loss", *(f"valid/{name}/loss" for name in SETS)]
    rows = [{"step": n, "epoch": 0, **dict.fromkeys(values, 1.0 / n)} for n in (1, 2)]
    made = [package(tmp_path / "runs", f"run {number}", rows=rows) for number in range(runs)]
    assert len(set(looks(draw(build_picture(made), "svg").decode()))) == (1 + len(SETS)) * (
        1 if runs == 1 else 3
    )


def test_a_set_has_the_colour_of_its_validation_in_the_test(tmp_path: Path) -> None:
    names = ["valid/loss", *(f"{split}/{name}/loss" for split in ("valid", "test") for name in SETS)]
    row = {"step": 1, "epoch": 0, **dict.fromkeys(names, 1.0)}
    made = build_picture([package(tmp_path / "runs", rows=[row])])
    (panel,) = made.panels
    colours = {
        (curve.split, curve.part): plot_drawing._curve_colour(
            curve, plot_drawing._panel_parts(made, panel), made
        )
        for curve in panel.curves
    }
    assert all(colours["valid", name] == colours["test", name] for name in SETS)
    assert len(set(colours.values())) == 1 + len(SETS)


def test_stars_of_several_packages_are_one_entry(tmp_path: Path) -> None:
    row = {"step": 1, "epoch": 0, "test/clean/loss": 1.0, "test/noisy/loss": 2.0, "valid/loss": 1.0}
    made = [package(tmp_path / "runs", name, rows=[row]) for name in ("a", "valid")]
    with mpl.rc_context({"svg.fonttype": "none"}):
        found = texts(draw(build_picture(made), "svg"))
    assert found.count("test") == 1 and "test/clean" not in found and found.count("valid") == 2
