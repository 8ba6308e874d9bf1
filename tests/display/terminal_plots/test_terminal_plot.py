"""A plot as text."""

from __future__ import annotations

import io
import math
import re
from pathlib import Path
from typing import Any

import pytest

from roost.display.terminal_plots.parallel_plot import parallel_lines
from roost.display.terminal_plots.terminal_plot import TextStyle, plot_lines, scatter_lines
from roost.operations.plots.plot_panels import build_picture
from roost.operations.plots.plot_view import PlotView
from roost.operations.plots.setting_points import SettingAxis, SettingPoints
from tests.operations.packages import ROWS, VALUES, package

COLOURS = ("\x1b[34m", "\x1b[31m", "\x1b[32m")
PLAIN = TextStyle(80, 30, (), unicode=True)
COLOURED = TextStyle(80, 30, COLOURS, unicode=True)
ASCII = TextStyle(80, 30, (), unicode=False)


def visible(line: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", line)


def braille(lines: list[str]) -> int:
    return sum("⠀" < character <= "⣿" for line in lines for character in line)


@pytest.mark.parametrize("width", [60, 80, 119, 120, 200])
@pytest.mark.parametrize("kind", ["coloured", "plain", "ascii"])
def test_fits_the_width(tmp_path: Path, width: int, kind: str) -> None:
    rows = [{**row, **{f"train/metric number {n}": n * 1e-7 for n in range(4)}} for row in ROWS]
    made = [package(tmp_path / "runs", f"run {n} " + "x" * 90, rows=rows) for n in range(3)]
    style = TextStyle(width, 24, COLOURS if kind == "coloured" else (), unicode=kind != "ascii")
    for packages in (made[:1], made):
        lines = plot_lines(build_picture(packages), style)
        assert max(len(visible(line)) for line in lines) <= width
        text = "\n".join(map(visible, lines))
        assert {"loss", "lr", "step"} <= set(text.split()) and "metric number 3" in text
        assert kind != "ascii" or text.isascii()
        assert kind == "coloured" or not any("\x1b" in line for line in lines)


def test_runs_differ_by_colour_or_by_letter(tmp_path: Path) -> None:
    made = [package(tmp_path / "runs", name, values={**VALUES, "width": n}) for n, name in enumerate("ab")]
    picture = build_picture(made, ["loss"])
    coloured = plot_lines(picture, COLOURED)
    assert braille(coloured) > 40 and all(any(one in line for line in coloured) for one in COLOURS[:2])
    for style in (PLAIN, ASCII):
        lines = plot_lines(picture, style)
        assert not braille(lines)
        legend = " ".join(lines[lines.index(next(line for line in lines if "width=0" in line)) :])
        assert "a width=0" in legend and "b width=1" in legend and "a A train, others" in legend
        body = "".join(lines[1 : lines.index(next(line for line in lines if "step" in line))])
        assert all(letter in body for letter in "bB"), "an equal curve hides the one below it"


def test_one_run_without_colours_has_dots_where_they_suffice(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    assert braille(plot_lines(build_picture([made], ["lr"]), PLAIN)) > 40
    assert not braille(plot_lines(build_picture([made], ["loss"]), PLAIN)), "two curves need letters"


def test_values_that_are_not_finite_and_not_above_0_are_marked(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"step": n, "epoch": 0, "train/loss": one} for n, one in enumerate((1.0, math.nan, -1.0, 2.0), 1)
    ]
    made = package(tmp_path / "runs", rows=rows, checkpoints=False)
    picture = build_picture([made], view=PlotView(log="y"))
    for style, marks in ((COLOURED, "✗▼"), (ASCII, "Xv")):
        lines = [visible(line) for line in plot_lines(picture, style)]
        assert marks[0] in lines[1] and "(log)" in lines[0]
        assert any(marks[1] in re.split("[│┤|+]", line, maxsplit=1)[-1] for line in lines[1:-1])
        assert f"{marks[0]} not finite" in lines[-1] and f"{marks[1]} not above 0" in lines[-1]


def test_smoothing_and_bands(tmp_path: Path) -> None:
    made = [
        package(tmp_path / "runs", str(n), values={**VALUES, "seed": n},
                rows=[{"step": s, "epoch": 0, "train/loss": (s % 3) + n} for s in range(1, 50)],
                checkpoints=False)
        for n in range(2)
    ]  # fmt: skip
    smoothed = plot_lines(build_picture(made[:1], view=PlotView(smooth=0.9)), COLOURED)
    assert any("\x1b[2m" in line for line in smoothed), "the recorded values are faint"
    grouped = plot_lines(build_picture(made, view=PlotView(group_by="seed")), COLOURED)
    assert "mean of 2 runs" in grouped[-1] and "± standard deviation" in grouped[-1]


def test_many_panels_are_named(tmp_path: Path) -> None:
    row = {"step": 1, "epoch": 0, **{f"train/m{n:02}": 1.0 for n in range(40)}}
    picture = build_picture([package(tmp_path / "runs", rows=[row], checkpoints=False)])
    lines = plot_lines(picture, PLAIN)
    (more,) = (line for line in lines if "more panels" in line)
    assert "28 more panels" in more and "m12" in more and more.endswith("...")
    assert not any("more panels" in line for line in plot_lines(picture, PLAIN, all_panels=True))


def test_strange_names(tmp_path: Path) -> None:
    row = {"step": 1, "epoch": 0, "train/\x1b[8m漢\u202e": 1.0}
    made = [
        package(tmp_path / "runs", f"\x1b]0;title\x07{n}漢\n", rows=[row], checkpoints=False) for n in "ab"
    ]
    for style in (PLAIN, ASCII):
        text = "\n".join(plot_lines(build_picture(made), style))
        assert not set(text) & {"\x1b", "\x07", "\u202e"} and "\\x1b" in text
        assert style is PLAIN or text.isascii()


def test_points_of_settings() -> None:
    points = SettingPoints(
        runs=["a", "b"],
        keys=[SettingAxis("lr", [0.001, 1.0], [], True), SettingAxis("kind", [0, 1], ["SGD", "Adam"], False)],
        metrics=[SettingAxis("valid/loss", [1.0, 2.0], [], False)],
        left_out=[],
        notes=[],
    )
    lines = scatter_lines(points, ASCII)
    text = "\n".join(lines)
    assert "valid/loss by lr" in text and text.count("o") >= 4 and "SGD" in text and text.isascii()
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("width", [60, 80, 200])
@pytest.mark.parametrize("num_keys", [1, 3, 20])
def test_parallel_axes(width: int, num_keys: int) -> None:
    keys = [
        SettingAxis("lr", [0.001, 0.1, 1.0], [], True),
        SettingAxis("kind", [0, 1, 1], ["SGD", "Adam\x1b" + "x" * 50], False),
        *(SettingAxis(f"model.width number {n}", [n, n, n], [], False) for n in range(18)),
    ]
    metric = SettingAxis("valid/loss", [3.0, 1.0, 2.5], [], False)
    points = SettingPoints(["first", "second", "thïrd"], keys[:num_keys], [metric], [], [])
    for colours, unicode in ((COLOURS, True), ((), True), ((), False)):
        lines = parallel_lines(points, TextStyle(width, 24, colours, unicode))
        text = "\n".join(map(visible, lines))
        assert max(len(visible(line)) for line in lines) <= width
        assert "\x1b" not in text and all(one in text for one in ("0.001", "lr", "2.5", "valid/loss"))
        assert num_keys == 1 or ("SGD" in text and "Adam" in text)
        assert num_keys < 20 or "model.wid" in text
        assert bool(braille(lines)) == bool(colours) and (unicode or text.isascii())
        if not colours:  # by their metric
            assert [line.split()[2][:2] for line in lines[-3:]] == ["se", "th", "fi"]


@pytest.mark.parametrize(
    ("encoding", "unicode"), [("utf-8", True), ("ascii", False), ("latin-1", False), ("no-such-one", False)]
)
def test_what_a_stream_can_show(encoding: str, unicode: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stream(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Stream()
    monkeypatch.setattr(Stream, "encoding", encoding, raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    found = TextStyle.of_stream(stream, {"TERM": "xterm-256color"})
    assert found.unicode == unicode and "38;5" in found.colours[0]
    assert "38;5" not in TextStyle.of_stream(stream, {"TERM": "vt100"}).colours[0]
    monkeypatch.setenv("NO_COLOR", "1")
    assert TextStyle.of_stream(stream).colours == ()
