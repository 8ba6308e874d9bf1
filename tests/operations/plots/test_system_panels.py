"""System metrics of runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from roost.base.errors import NotFound, UsageError
from roost.operations.plots import plot_drawing
from roost.operations.plots.plot import read_curves
from roost.operations.plots.plot_view import PlotView
from roost.operations.plots.system_panels import build_system_picture
from roost.package.package import PackageFolder
from roost.package.results.system_metrics import SystemRow, encode_row
from tests.operations.packages import package, session

START = 1_800_000_000.0
"""When the first session of `packages.package` starts."""
COLUMNS = ["gpu0/utilization", "gpu1/utilization", "gpu0/power", "session/cores", "host/swap_mb"]
ELAPSED = PlotView(x="elapsed")


def measure(made: PackageFolder, file: str, rows: Sequence[SystemRow], *lines: object) -> None:
    folder = made.path / "system"
    folder.mkdir(exist_ok=True)
    head = json.dumps({"format": 1, "columns": COLUMNS}).encode() + b"\n"
    rest = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    (folder / file).write_bytes(head + b"".join(map(encode_row, rows)) + rest)


def row(time: float, *means: float | None) -> SystemRow:
    peaks = [None if one is None else one + 5 for one in means]
    return SystemRow(time, 1.0, means, peaks)


def measured(folder: Path, name: str = "one") -> PackageFolder:
    made = package(folder, name)
    measure(made, "1.jsonl", [row(START + 1, 50, 60, 100, 4, 0), row(START + 2, 70, None, 110, 4, 0)])
    return made


def test_cards_share_a_panel_in_the_usual_order(tmp_path: Path) -> None:
    found = build_system_picture([measured(tmp_path / "runs")], view=ELAPSED)
    assert [panel.name for panel in found.panels] == ["gpu/utilization", "gpu/power", "session/cores"]
    one, two = found.panels[0].curves
    assert (one.split, one.x, one.y, one.band) == ("gpu0", [1, 2], [50, 70], ([50, 70], [55, 75]))
    assert (two.split, two.x, two.y) == ("gpu1", [1], [60]), "what was not measured is left out"
    assert found.known == COLUMNS


def test_those_that_are_named(tmp_path: Path) -> None:
    made = measured(tmp_path / "runs")
    for names, panels in ((["host/*"], ["host/swap_mb"]), (["gpu1/*"], ["gpu/utilization"])):
        found, damaged = read_curves([made.path], names=names, view=ELAPSED, system=True)
        assert [panel.name for panel in found.panels] == panels and damaged == []
        assert [curve.split for curve in found.panels[0].curves] == [
            "gpu1" if "gpu1/*" in names else "host/swap_mb"
        ]
    with pytest.raises(NotFound, match="gpu0/power"):
        read_curves([made.path], names=["gpu0/powr"], view=ELAPSED, system=True)


def test_sessions_follow_each_other_without_the_pause_and_nodes_are_apart(tmp_path: Path) -> None:
    made, day = measured(tmp_path / "runs"), 86400
    session(made, "succeeded", started=START + day)
    measure(made, "2.jsonl", [row(START + day + 3, 90, 60, 100, 4, 0)])
    measure(made, "2.node-1.jsonl", [row(START + day + 3, 10, 20, 100, 4, 0)])
    found = build_system_picture([made], ["gpu0/utilization"], view=ELAPSED)
    assert [(one.split, one.x) for one in found.panels[0].curves] == [
        ("gpu0", [1, 2, 63]),
        ("node 1 gpu0", [63]),
    ]
    by_time = build_system_picture([made], ["gpu0/utilization"], view=PlotView(x="time"))
    assert by_time.panels[0].curves[0].x == [START + 1, START + 2, START + day + 3]


def test_gaps_are_said(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    gap = {"gap": [START + 2, START + 9, "the driver does not answer"]}
    measure(made, "1.jsonl", [row(START + 1, 1, 1, 1, 1, 1)], *[gap] * 7)
    found = build_system_picture([made], view=ELAPSED)
    assert found.notes[0] == "one: not measured for 7 s: the driver does not answer"
    assert len(found.notes) == 6 and found.notes[-1] == "one: and 2 more gaps"


def test_the_gaps_of_several_runs_are_one_line(tmp_path: Path) -> None:
    made = []
    for name, reasons in (("a", ["no driver"] * 2), ("b", ["busy"]), ("c", [])):
        made.append(package(tmp_path / "runs", name))
        gaps = [{"gap": [START + 2, START + 9, reason]} for reason in reasons]
        measure(made[-1], "1.jsonl", [row(START + 1, 1, 1, 1, 1, 1)], *gaps)
    found = build_system_picture(made, view=ELAPSED)
    assert found.notes == ["2 of 3 runs have gaps, 21 s in all (a, b): mostly: no driver"]
    assert build_system_picture(made[1:], view=ELAPSED).notes == [
        "1 of 2 runs has gaps, 7 s in all (b): busy"
    ]


def test_several_runs(tmp_path: Path) -> None:
    made = [measured(tmp_path / "runs", name) for name in ("a", "b")]
    nothing = package(tmp_path / "runs", "c")
    found = build_system_picture([*made, nothing], view=ELAPSED)
    assert [run.name for run in found.runs] == ["a", "b"] and found.left_out == ["c"]
    assert plot_drawing.draw(found, "png").startswith(b"\x89PNG")
    with pytest.raises(NotFound, match="no system metrics"):
        read_curves([nothing.path], view=ELAPSED, system=True)


@pytest.mark.parametrize("view", [PlotView(), PlotView(x="time", smooth=0.5), PlotView(x="time", log="y")])
def test_only_over_time(tmp_path: Path, view: PlotView) -> None:
    with pytest.raises(UsageError) as refused:
        build_system_picture([measured(tmp_path / "runs")], view=view)
    assert refused.value.setting == "--system"
