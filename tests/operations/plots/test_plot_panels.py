"""What is drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from roost.operations.plots.plot_panels import Picture, build_picture, split_name
from roost.package.package import PackageFolder
from roost.package.records import encode_records
from tests.operations.packages import ROWS, TIMES, package, record_rows, session


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
