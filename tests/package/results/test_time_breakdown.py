"""Where the time of a run went."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from roost.package import records
from roost.package.results import time_breakdown
from roost.package.results.time_breakdown import PARTS, TimeBreakdown, from_records
from tests.messages import Messages


def span(**parts: float) -> TimeBreakdown:
    return TimeBreakdown(
        seconds=10.0, steps=4, samples=400, parts=dict.fromkeys(PARTS, 0.0) | parts, host_mb=512.0
    )


def row(ms: float = 1.0, **others: float) -> dict[str, float]:
    """A row whose steps took 6 ms each, when ``ms`` is 1."""
    times = {f"perf/{name}_ms": ms for name in ("data", "to_device", "forward", "backward", "optimizer")}
    return {"train/loss": 0.5, **times, "perf/other_ms": ms, **others}


def fold(folder: Path, *sessions: tuple[int, dict[int, dict[str, float]]]) -> records.Columns:
    """Each session with its first step and its rows by step."""
    for number, (start, rows) in enumerate(sessions, 1):
        writer = records.RecordsWriter(folder / f"{number}.jsonl", session=number, start_step=start)
        for step, values in rows.items():
            writer.row(step, 0, values)
        writer.close()
    return records.fold(folder)


def test_names_of_columns() -> None:
    assert [time_breakdown.column_name(part) for part in PARTS] == [
        *(f"perf/{name}_ms" for name in ("data", "to_device", "forward", "backward", "optimizer")),
        "perf/validate_s",
        "perf/save_s",
    ]


def test_a_line(messages: Messages) -> None:
    found = span(data=0.4, forward=3.1, backward=5.0, validate=0.5, save=0.5)
    messages.check(found)
    shares = ("data 4%", "forward 31%", "backward 50%", "validate 5%", "save 5%", " 5%")
    assert all(fact in str(found) for fact in ("10.0s", "44 samples/s", *shares, "512 MB"))
    gpu = TimeBreakdown(seconds=300.0, parts={"data": 300.0}, host_mb=1536.0, gpu_mb=12.1 * 1024)
    messages.check(gpu)
    assert all(fact in str(gpu) for fact in ("5m 00s", "data 100%", "1.5 GB", "12.1 GB"))
    assert str(TimeBreakdown()) == "0.0s"


def test_the_rate_is_that_of_training_alone() -> None:
    assert span(validate=4.0, save=1.0).samples_per_second == 80.0
    assert TimeBreakdown(seconds=1.0, samples=5, parts={"save": 1.0}).samples_per_second == 0.0


def test_parts_that_were_measured_too_long_leave_nothing() -> None:
    shares = span(forward=10.0, backward=30.0).shares
    assert shares == {"forward": 0.25, "backward": 0.75}


def test_what_came_after() -> None:
    later = TimeBreakdown(seconds=12.0, steps=5, samples=420, parts={**span().parts, "data": 3.0}, gpu_mb=7.0)
    assert later - span(data=1.0) == TimeBreakdown(
        2.0, 1, 20, {**dict.fromkeys(PARTS, 0.0), "data": 2.0}, 0.0, 7.0
    )


def test_the_rows_of_a_run_together(tmp_path: Path) -> None:
    first = {10: row(**{"perf/samples_per_second": 1000.0, "perf/host_mb": 5.0, "perf/gpu_mb": 9.0})}
    second = row(2.0, **{"perf/samples_per_second": 500.0, "perf/validate_s": 1.0, "perf/host_mb": 6.0})
    found = from_records(fold(tmp_path, (0, {**first, 20: {**second, "perf/save_s": 0.5}})))
    assert found is not None
    assert (found.steps, found.samples, found.host_mb, found.gpu_mb) == (20, 120, 6.0, 9.0)
    assert found.seconds == pytest.approx(0.06 + 0.12 + 1.5) and list(found.parts) == list(PARTS)
    assert found.parts["forward"] == pytest.approx(0.03) and found.parts["validate"] == 1.0


def test_a_session_counts_from_where_it_began(tmp_path: Path) -> None:
    """The first session trained the steps 10 to 13, but has no row about them."""
    found = from_records(fold(tmp_path, (0, {10: row(), 20: row()}), (13, {20: row(), 30: row()})))
    assert found is not None and found.steps == 10 + 7 + 10


def test_a_session_that_went_back_hides_the_ones_before(tmp_path: Path) -> None:
    sessions = [(0, {10: row(), 20: row()}), (25, {30: row()}), (10, {22: row(), 40: row()})]
    found = from_records(fold(tmp_path, *sessions))
    assert found is not None and found.steps == 40


def test_rows_that_tell_nothing(tmp_path: Path) -> None:
    assert from_records(records.Columns()) is None
    assert from_records(fold(tmp_path, (0, {1: {"train/loss": 1.0}, 2: {"perf/host_mb": 5.0}}))) is None


def test_strange_values_are_passed_over(tmp_path: Path) -> None:
    columns = fold(tmp_path, (0, {10: row(), 20: row(math.nan), 30: {**row(), "perf/data_ms": math.inf}}))
    found = from_records(columns)
    assert found is not None and found.seconds == pytest.approx(0.06 + 0.1)
    assert found.steps == 30, "what lies between two rows that tell something"
