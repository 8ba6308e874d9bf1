"""The parts of the bar."""

from __future__ import annotations

from pathlib import Path

import pytest

from roost.base.interval import NEVER
from roost.cli.progress_bar import Durability, Eta, NewestMetrics, format_progress, part_done
from roost.package import live_progress
from roost.package.live_progress import ProgressFile
from roost.train.progress import Progress
from roost.train.reporting.progress_publisher import ProgressPublisher
from tests.package.remote import statuses


def test_the_newest_value_of_every_metric(tmp_path: Path) -> None:
    path = tmp_path / "1.jsonl"
    rows = NewestMetrics(path)
    assert rows.text() == ""
    path.write_text(
        '{"session": 1, "start_step": 0, "time": 1}\n{"step": 1, "epoch": 0, "time": 2, "a": 0.5, "b": 1}\n'
    )
    assert rows.text() == "a 0.5  b 1"
    with path.open("a") as file:
        file.write('{"step": 2, "epoch": 0, "time": 3, "a": nu')
    assert rows.text() == "a 0.5  b 1"
    with path.open("a") as file:
        file.write(
            'll, "nonfinite": {"a": "nan"}}\n{"half\n{"step": 3, "epoch": 0, "time": 4, "b": 1234567}\n'
        )
    assert rows.text() == "a nan  b 1.235e+06"


def test_what_a_rollback_undid_is_not_shown(tmp_path: Path) -> None:
    """Values from before the rollback stay; later ones are recorded again."""
    path = tmp_path / "1.jsonl"
    rows = NewestMetrics(path)
    header = '{"session": 1, "start_step": %d, "time": 1}\n'
    row = '{"step": %d, "epoch": 0, "time": 2, "%s": %s}\n'
    path.write_text(header % 0 + row % (4, "a", 1) + row % (6, "b", 2) + row % (7, "c", 3))
    assert rows.text() == "a 1  b 2  c 3"
    with path.open("a") as file:
        file.write(header % 6)
    assert rows.text() == "a 1  b 2"
    with path.open("a") as file:
        file.write(row % (7, "c", 4))
    assert rows.text() == "a 1  b 2  c 4"


def test_a_run_limited_by_time_alone_shows_no_total(tmp_path: Path) -> None:
    board = ProgressFile(tmp_path / "progress")
    for total_steps, place in ((NEVER, "epoch 2  step 1,005"), (2000, "epoch 2/2  step 1,005/2,000")):
        run = Progress(step=1005, epoch=1, batch=5, total_steps=total_steps, total_seconds=60.0)
        ProgressPublisher(board, steps_per_epoch=1000).publish(run, "training")
        seen = live_progress.read(tmp_path / "progress")
        assert seen is not None and format_progress(seen) == place


def test_a_run_whose_end_the_project_decides_shows_the_part_of_its_epoch(tmp_path: Path) -> None:
    """Not a bar that stands at 0% until the end."""
    board = ProgressFile(tmp_path / "progress")
    for steps_per_epoch, total_steps, shown in (
        (20, 0, (0.4, " 40% of the epoch")),
        (20, 336, (0.5, " 50%")),
        (0, 0, (0.0, "")),  # a loader without a length
    ):
        run = Progress(step=168, epoch=8, batch=8, total_steps=total_steps)
        ProgressPublisher(board, steps_per_epoch=steps_per_epoch).publish(run, "training")
        seen = live_progress.read(tmp_path / "progress")
        assert seen is not None and part_done(seen) == shown


def test_the_time_that_is_left() -> None:
    eta = Eta()
    assert eta.seconds(0.0, 0.5) is None
    assert eta.seconds(0.5, 0.51) is None  # too early to tell
    assert eta.seconds(10.0, 0.6) == pytest.approx(40.0)
    for second in range(11, 100):  # it has become ten times slower
        left = eta.seconds(float(second), 0.6 + (second - 10) * 0.001)
    assert left is not None and 300 < left < 320


def test_a_run_without_progress() -> None:
    eta = Eta()
    assert [eta.seconds(float(second), 0.5) for second in range(5)] == [None] * 5


def test_how_far_the_remote_copy_is(tmp_path: Path) -> None:
    (tmp_path / "sessions").mkdir()
    shown = Durability(tmp_path)
    assert shown.lines(0.0) == []
    statuses.write(tmp_path, step=20, pending_bytes=12_000_000)
    assert shown.lines(0.5) == [], "it is read once a second"
    assert [(line.plain, line.style) for line in shown.lines(2.0)] == [
        ("durable up to step 20, 12 MB to go", "dim")
    ]
    statuses.failing(tmp_path, seconds=5)
    assert [(line.plain, line.style) for line in shown.lines(4.0)] == [
        ("NOT durable since step 20: the store does not answer", "yellow")
    ]
