"""What is drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from roost.base.errors import UsageError
from roost.operations.plots import plot_panels
from roost.operations.plots.plot_panels import Picture, build_picture, split_name
from roost.operations.plots.plot_view import PlotView
from roost.operations.plots.recorded_run import RecordedRun
from roost.package.package import PackageFolder
from roost.package.records import encode_records
from tests.operations.packages import ROWS, TIMES, VALUES, package, record_rows, session


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("train/loss", ("train", "", "loss")),
        ("valid/noisy/loss", ("valid", "noisy", "loss")),
        ("lr", ("lr", "", "lr")),
        ("lr/encoder", ("lr/encoder", "", "lr")),
        ("test", ("test", "", "test")),
        ("perf/data_ms", ("perf/data_ms", "", "perf/data_ms")),
        ("stats/grad_norm", ("stats/grad_norm", "", "stats/grad_norm")),
        ("stats/grad_norm/net.0.bias", ("stats/grad_norm/net.0.bias", "", "stats/grad_norm/*")),
    ],
)
def test_names(name: str, parts: tuple[str, str, str]) -> None:
    assert split_name(name) == parts


def test_one_panel_for_one_name(tmp_path: Path) -> None:
    found = build_picture([package(tmp_path / "runs")])
    assert [panel.name for panel in found.panels] == ["loss", "lr"]
    assert [(c.split, c.x, c.y) for c in found.panels[0].curves] == [
        ("train", [10, 20, 30], [2.0, 1.0, 0.5]),
        ("valid", [10, 20, 30], [1.5, 0.5, 0.75]),
        ("test", [30], [0.7]),
    ]


def test_marks(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", state="stopped")
    session(made, "succeeded")
    record_rows(made, 2, 20, [{"step": 40, "epoch": 4, "train/loss": 0.1}])
    (run,) = build_picture([made]).runs
    assert (run.name, run.checkpoints, run.best, run.session_starts) == ("one", [10, 20, 30], [20], [20])
    assert run.steps_per_epoch == 10


def test_several_packages_share_panels(tmp_path: Path) -> None:
    found = build_picture([package(tmp_path / "runs"), package(tmp_path / "runs", "two")])
    assert [panel.name for panel in found.panels] == ["loss", "lr"]
    assert sorted({curve.run for curve in found.panels[0].curves}) == [0, 1]


def test_values_that_are_not_finite_are_gaps(tmp_path: Path) -> None:
    rows = [*ROWS[:2], {"step": 30, "epoch": 3, "train/loss": math.nan, "valid/loss": math.inf}]
    train, valid = build_picture([package(tmp_path / "runs", rows=rows)]).panels[0].curves
    assert train.gaps == valid.gaps == [30] and train.x == [10, 20]


@pytest.mark.parametrize(("first", "logarithmic"), [(100.0, True), (2.0, False), (-1.0, False), (0.0, False)])
def test_a_loss_that_falls_by_orders_of_magnitude(tmp_path: Path, first: float, logarithmic: bool) -> None:
    rows = [{"step": 1, "epoch": 0, "valid/loss": first}, {"step": 2, "epoch": 0, "valid/loss": 0.5}]
    (panel,) = build_picture([package(tmp_path / "runs", rows=rows)]).panels
    assert panel.logarithmic == logarithmic


def test_times_are_drawn_when_they_are_named(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", rows=[{**row, **TIMES} for row in ROWS])
    assert [panel.name for panel in build_picture([made]).panels] == ["loss", "lr"]
    found = build_picture([made], ["perf/*_ms", "perf/host_mb"])
    assert [panel.name for panel in found.panels] == sorted(TIMES.keys() - {"perf/samples_per_second"})
    assert found.panels[-1].curves[0].y == [1.0] * 3, "an axis each"
    assert set(found.known) == {"train/loss", "valid/loss", "lr", "test/loss", *TIMES}


@pytest.mark.parametrize(
    ("names", "curves"),
    [
        (["loss"], ["train", "valid", "test"]),
        (["valid/*", "lr"], ["valid", "lr"]),
        (["train/loss"], ["train"]),
        (["accuracy"], []),
    ],
)
def test_those_that_are_named(tmp_path: Path, names: list[str], curves: list[str]) -> None:
    found = build_picture([package(tmp_path / "runs")], names)
    assert [curve.split for panel in found.panels for curve in panel.curves] == curves
    assert found.left_out == ([] if curves else ["one"])


def test_a_name_with_the_letters_of_a_pattern(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", rows=[{"step": 1, "epoch": 0, "valid/loss": 1.0, "train/iou[0]": 1.0}])
    assert [panel.name for panel in build_picture([made], ["iou[0]"]).panels] == ["iou[0]"]


def test_packages_without_rows_are_left_out(tmp_path: Path) -> None:
    made = [
        package(tmp_path / "runs", f"failed{i}", state="failed", rows=[], checkpoints=False) for i in (1, 2)
    ]
    made.insert(1, package(tmp_path / "runs", "good"))
    found = build_picture(made)
    assert [run.name for run in found.runs] == ["good"] and found.left_out == ["failed1", "failed2"]
    assert {curve.run for panel in found.panels for curve in panel.curves} == {0}
    nothing = build_picture(made[:1])
    assert (nothing.panels, nothing.runs) == ([], [])


def test_statistics_are_drawn_when_they_are_named(tmp_path: Path) -> None:
    norms = {"stats/grad_norm": 2.0, "stats/grad_norm/a": 1.0, "stats/grad_norm/b": 3.0}
    made = package(tmp_path, rows=[{**row, **norms} for row in ROWS])
    assert not [panel.name for panel in build_picture([made]).panels if panel.name.startswith("stats/")]
    assert set(norms) <= set(build_picture([made]).known)
    [one] = build_picture([made], ["stats/grad_norm"]).panels
    assert [curve.split for curve in one.curves] == ["stats/grad_norm"]
    [by_parameter] = build_picture([made], ["stats/grad_norm/*"]).panels
    assert [curve.split for curve in by_parameter.curves] == ["stats/grad_norm/a", "stats/grad_norm/b"]


# --- presentation -----------------------------------------------------------------------------------------


def losses(folder: Path, name: str, values: Sequence[float], **settings: Any) -> PackageFolder:
    """A package with these training losses at steps 1, 2, …"""
    rows = [{"step": step, "epoch": 0, "train/loss": value} for step, value in enumerate(values, 1)]
    return package(folder, name, rows=rows, checkpoints=False, values={**VALUES, **settings})


def test_smoothed_curves_keep_the_recorded_values(tmp_path: Path) -> None:
    made = losses(tmp_path / "runs", "a", [4.0, 0.0, 4.0])
    (curve,) = build_picture([made], view=PlotView(smooth=0.5)).panels[0].curves
    assert curve.raw == ([1, 2, 3], [4.0, 0.0, 4.0])
    assert curve.y == pytest.approx([4.0, 4 / 3, 20 / 7])


@pytest.mark.parametrize(("log", "logarithmic"), [("none", False), ("y", True), ("xy", True), (None, True)])
def test_axes_that_are_requested(tmp_path: Path, log: str | None, logarithmic: bool) -> None:
    made = losses(tmp_path / "runs", "a", [100.0, 1.0])
    assert build_picture([made], view=PlotView(log=log)).panels[0].logarithmic == logarithmic


def test_values_without_a_place_on_a_logarithmic_axis_are_marked_and_counted(tmp_path: Path) -> None:
    made = losses(tmp_path / "runs", "a", [1.0, 0.0, -2.0, 3.0])
    found = build_picture([made], view=PlotView(log="y"))
    (curve,) = found.panels[0].curves
    assert (curve.x, curve.y, curve.below) == ([1, 4], [1.0, 3.0], [2, 3])
    assert len(found.notes) == 1 and "loss: 2 values" in found.notes[0]
    assert build_picture([made]).notes == []


def test_step_0_has_no_place_on_a_logarithmic_axis(tmp_path: Path) -> None:
    rows = [{"step": step, "epoch": 0, "train/loss": 1.0} for step in (0, 1, 2)]
    made = package(tmp_path / "runs", rows=rows, checkpoints=False)
    found = build_picture([made], view=PlotView(log="x"))
    assert found.panels[0].curves[0].x == [1, 2] and "step 0" in found.notes[0]


def test_means_over_seeds(tmp_path: Path) -> None:
    made = [
        losses(tmp_path / "runs", f"{lr}-{seed}", [lr + seed] * (3 - seed), lr=lr, seed=seed)
        for lr in (10.0, 20.0)
        for seed in (0, 2)
    ]
    found = build_picture(made, view=PlotView(group_by="seed"))
    assert [run.name for run in found.runs] == ["lr=10", "lr=20"]
    assert [key.label for key in found.legend] == ["lr=10, mean of 2 runs", "lr=20, mean of 2 runs"]
    one, two = found.panels[0].curves
    assert (one.x, one.y, one.counts) == ([1], [11.0], (2, 2)) and two.y == [21.0]
    assert one.band is not None and one.band[0] == pytest.approx([11 - 2**0.5])
    assert build_picture(made, view=PlotView(group_by="seed")).band == "± standard deviation"
    extremes = build_picture(made, view=PlotView(group_by="seed", band="min-max"))
    assert extremes.panels[0].curves[0].band == ([10.0], [12.0])
    assert extremes.band == "least to greatest value"


def test_a_mean_says_where_it_is_of_fewer_runs(tmp_path: Path) -> None:
    made = [
        losses(tmp_path / "runs", f"{seed}", [1.0] * length, seed=seed)
        for seed, length in enumerate((3, 3, 2))
    ]
    found = build_picture(made, view=PlotView(group_by="seed"))
    (curve,) = found.panels[0].curves
    assert curve.x == [1, 2, 3] and curve.counts == (2, 3)
    assert any("2 to 3 runs" in note for note in found.notes), found.notes


def test_a_run_without_samples_is_left_out_aloud(tmp_path: Path) -> None:
    made = [losses(tmp_path / "runs", name, [1.0, 2.0]) for name in ("good", "bad")]
    made[1].progress.unlink()
    found = build_picture(made, view=PlotView(x="samples"))
    assert [run.name for run in found.runs] == ["good"]
    assert found.notes == ["bad is left out: it has recorded no samples"]


def test_if_dashes_are_of_runs_each_set_has_a_panel(tmp_path: Path) -> None:
    row = {"step": 1, "epoch": 0, "valid/a/loss": 1.0, "valid/b/loss": 1.0, "lr/head": 1.0, "lr": 1.0}
    made = [
        package(tmp_path / "runs", f"{n:02}", rows=[row], checkpoints=False, values={**VALUES, "width": n})
        for n in range(9)
    ]
    assert [one.name for one in build_picture(made[:8]).panels] == ["loss", "lr"]
    found = build_picture(made)
    assert sorted(one.name for one in found.panels) == ["a/loss", "b/loss", "lr", "lr/head"]
    assert not any(curve.part for panel in found.panels for curve in panel.curves)


def test_more_runs_than_styles_are_drawn_and_said(tmp_path: Path) -> None:
    made = [losses(tmp_path / "runs", f"{n:02}", [1.0], width=n) for n in range(41)]
    found = build_picture(made)
    assert len(found.panels[0].curves) == 41 and "41 runs" in found.notes[0]


def test_a_long_curve_keeps_its_extremes(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", rows=[], checkpoints=False)
    values = [0.5 + (step % 7) / 100 for step in range(1, 20_001)]
    values[7_000], values[9_000] = 99.0, math.nan
    rows: list[dict[str, Any]] = [
        {"step": step, "epoch": 0, "train/loss": value} for step, value in enumerate(values, 1)
    ]
    record_rows(made, 2, 0, rows)
    (curve,) = build_picture([made]).panels[0].curves
    assert len(curve.x) <= 4000 and curve.gaps == [9001]
    assert curve.y[curve.x.index(7001)] == 99.0 and curve.x[-1] == 20_000


def test_too_many_panels_are_refused_before_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {"step": 1, "epoch": 0, **{f"train/m{n}": 1.0 for n in range(plot_panels.MAX_PANELS + 1)}}
    made = package(tmp_path / "runs", rows=[row], checkpoints=False)

    def fail(self: RecordedRun, name: str) -> None:
        raise AssertionError(name)

    monkeypatch.setattr(RecordedRun, "series", fail)
    with pytest.raises(UsageError, match="401 panels") as refused:
        build_picture([made])
    assert refused.value.setting == "-m"


# --- forks ------------------------------------------------------------------------------------------------


def fork_of(made: PackageFolder, name: str, step: int, rows: Sequence[dict[str, float]]) -> PackageFolder:
    """A package as `roost fork` makes it, with what it has recorded itself."""
    parent = {"package": made.path.name, "path": "", "checkpoint": 1, "step": step, "sha256": ""}
    shared = [row for row in made.records().rows if row["step"] <= step]
    new = PackageFolder.create(
        made.path.parent,
        name=name,
        values={},
        request={"parent": parent, "ancestors": [made.request["parent"]] if "parent" in made.request else []},
    )
    (new.path / "records" / "0.jsonl").write_bytes(encode_records(shared, session=0))
    record_rows(new, 1, step, rows)
    return new


def drawn_of(found: Picture, run: int, name: str = "loss") -> list[tuple[bool, list[int]]]:
    """(of before the fork, steps) of each training curve of a run."""
    (panel,) = (one for one in found.panels if one.name == name)
    return [(one.before_fork, one.x) for one in panel.curves if one.run == run and one.split == "train"]


OWN = [{"step": step, "epoch": 3, "train/loss": 0.1, "valid/loss": 0.2} for step in (25, 30)]


def test_a_fork_alone_has_what_was_before_it(tmp_path: Path) -> None:
    new = fork_of(package(tmp_path / "runs"), "fork", 20, OWN)
    found = build_picture([new])
    assert drawn_of(found, 0) == [(True, [10, 20]), (False, [20, 25, 30])]
    assert found.runs[0].forked_at == 20 and found.runs[0].session_starts == []


def test_beside_its_parent_the_shared_part_is_there_once(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    new = fork_of(made, "fork", 20, OWN)
    for order in ([made, new], [new, made]):
        found = build_picture(order)
        assert drawn_of(found, order.index(made)) == [(False, [10, 20, 30])]
        assert drawn_of(found, order.index(new)) == [(False, [20, 25, 30])]


def test_two_forks_of_one_share_what_they_can(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    early, late = fork_of(made, "early", 10, OWN), fork_of(made, "late", 20, OWN)
    found = build_picture([early, late])
    assert drawn_of(found, 0) == [(True, [10]), (False, [10, 25, 30])]
    assert drawn_of(found, 1) == [(True, [10, 20]), (False, [20, 25, 30])], "joined to what is there"


def test_a_fork_of_a_fork_beside_both(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    first = fork_of(made, "first", 20, OWN)
    second = fork_of(first, "second", 25, [{"step": 40, "epoch": 4, "train/loss": 0.0, "valid/loss": 0.0}])
    found = build_picture([second, first, made])
    assert drawn_of(found, 0) == [(False, [25, 40])] and drawn_of(found, 1) == [(False, [20, 25, 30])]


def test_what_was_not_finite_before_a_fork(tmp_path: Path) -> None:
    rows = [*ROWS[:2], {"step": 20, "epoch": 2, "train/loss": math.nan, "valid/loss": 1.0}]
    made = package(tmp_path / "runs", rows=[rows[0], rows[2], ROWS[2]])
    found = build_picture([fork_of(made, "fork", 20, OWN)])
    (panel,) = (one for one in found.panels if one.name == "loss")
    before = next(one for one in panel.curves if one.split == "train" and one.before_fork)
    assert before.gaps == [20] and before.x == [10]
