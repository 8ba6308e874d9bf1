"""Steps as epochs, times and samples."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from roost.operations.plots.recorded_run import RecordedRun
from roost.operations.plots.x_axis import time_unit
from roost.package.package import PackageFolder
from tests.operations.packages import package, session

START = 1_800_000_000.0
"""When the sessions of `packages.session` start, unless they say otherwise."""


def timed(
    folder: Path, *sessions: tuple[float, list[tuple[int, float]]], progress: bool = True
) -> PackageFolder:
    """A package whose sessions began at a time and recorded these steps at these times."""
    made = package(folder, rows=[], checkpoints=False, started=sessions[0][0])
    for number, (begin, rows) in enumerate(sessions, 1):
        if number > 1:
            session(made, "succeeded", started=begin)
        lines = [{"session": number, "start_step": rows[0][0] - 1, "time": begin}]
        lines += [{"step": step, "epoch": step // 10, "time": time, "loss": 1.0} for step, time in rows]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (made.path / "records" / f"{number}.jsonl").write_text(text)
    if not progress:
        made.progress.unlink()
    return made


def positions(made: PackageFolder, kind: str, *steps: int) -> list[float]:
    run = RecordedRun(made, kind)
    assert run.has_axis
    return run.step_positions(list(steps))


def test_steps_epochs_and_samples(tmp_path: Path) -> None:
    made = timed(tmp_path / "runs", (START, [(10, START + 1), (20, START + 2)]))
    assert positions(made, "step", 10, 20) == [10, 20]
    assert positions(made, "epoch", 5, 20) == [0.5, 2.0], "10 steps per epoch"
    assert positions(made, "samples", 10) == [40.0], "4 per step"


def test_without_a_progress_record(tmp_path: Path) -> None:
    made = timed(tmp_path / "runs", (START, [(10, START + 1), (20, START + 2)]), progress=False)
    assert positions(made, "epoch", 10, 15) == [1.0, 1.5], "those of the rows"
    assert not RecordedRun(made, "samples").has_axis


def test_times_between_rows_are_interpolated(tmp_path: Path) -> None:
    made = timed(tmp_path / "runs", (START, [(10, START + 1), (20, START + 2)]))
    assert positions(made, "time", 10, 15, 20) == [START + 1, START + 1.5, START + 2]


def test_a_clock_that_was_set_back_does_not_turn_the_curve(tmp_path: Path) -> None:
    made = timed(tmp_path / "runs", (START, [(1, START + 10), (2, START + 5), (3, START + 12)]))
    assert positions(made, "time", 1, 2, 3) == [START + 10, START + 10, START + 12]


def test_pauses_between_sessions_are_no_elapsed_time(tmp_path: Path) -> None:
    day = 86400
    made = timed(
        tmp_path / "runs",
        (START, [(10, START + 5), (20, START + 10)]),
        (START + day, [(30, START + day + 5), (40, START + day + 10)]),
    )
    assert positions(made, "elapsed", 10, 20, 30, 40) == [5.0, 10.0, 65.0, 70.0], "each lasted a minute"


def test_rows_of_before_the_first_session_were_inherited(tmp_path: Path) -> None:
    made = timed(tmp_path / "runs", (START, [(10, START - 100), (20, START - 90), (30, START + 5)]))
    assert positions(made, "elapsed", 10, 20, 30) == [0.0, 10.0, 15.0]


def test_rows_without_times(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", rows=[], checkpoints=False)
    (made.path / "records" / "1.jsonl").write_text('{"session":1,"start_step":0}\n{"step":1,"loss":1.0}\n')
    assert not RecordedRun(made, "time").has_axis and RecordedRun(made).has_axis


@pytest.mark.parametrize(
    ("seconds", "unit"), [(10, "seconds"), (119, "seconds"), (120, "minutes"), (7200, "hours"), (2e5, "days")]
)
def test_units(seconds: float, unit: str) -> None:
    length, name = time_unit(seconds)
    assert name == unit and (name == "seconds" or seconds / length >= 2)


def test_positions_keep_the_shape(tmp_path: Path) -> None:
    made = timed(tmp_path / "runs", (START, [(10, START + 1)]))
    assert RecordedRun(made, "time").positions(np.array([], np.int64)).tolist() == []
