"""Rows of sources that count differently, in ascending steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from roost.package import live_progress, records
from roost.worker.programs.line_metrics import LineParser
from roost.worker.programs.program_rows import ProgramRows, Source


@pytest.fixture
def package(tmp_path: Path) -> Path:
    (tmp_path / "records").mkdir()
    return tmp_path


def lines(rows: ProgramRows, *texts: str) -> None:
    parser = LineParser({})
    for text in texts:
        rows.add_line(parser.parse(text))


def written(package: Path, session: int = 1) -> list[dict[str, Any]]:
    text = (package / "records" / f"{session}.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def series(package: Path, name: str) -> tuple[list[int], list[float]]:
    return records.fold(package / "records").series[name]


def test_steps_within_epochs_ascend(package: Path) -> None:
    rows = ProgramRows(package, 1)
    lines(rows, *(f"Epoch [{e}/2], Step [{s}/3], Loss: {e + s}" for e in (1, 2) for s in (1, 2, 3)))
    lines(rows, "Test set: Accuracy: 9/10")
    rows.close()
    assert series(package, "loss") == ([4, 5, 6, 7, 8, 9], [2, 3, 4, 3, 4, 5])
    assert series(package, "test/accuracy") == ([9], [0.9])
    seen = live_progress.read(package / "progress")
    assert seen is not None and (seen.step, seen.epoch, seen.phase, seen.fraction) == (9, 2, "ended", 1.0)


def test_a_counter_that_begins_again_is_added_up(package: Path) -> None:
    rows = ProgramRows(package, 1)
    lines(rows, *(f"batch {s} loss {s}" for _ in range(2) for s in (10, 20)))
    rows.close()
    assert series(package, "loss") == ([10, 20, 30, 40], [10, 20, 10, 20])


def test_lines_without_any_position_are_counted(package: Path) -> None:
    rows = ProgramRows(package, 1)
    lines(rows, "loss 3", "no number", "loss 2")
    rows.close()
    assert series(package, "loss") == ([1, 2], [3, 2])


def test_losses_within_an_epoch_are_no_value_of_the_epoch(package: Path) -> None:
    rows = ProgramRows(package, 1)
    for epoch in (1, 2):
        lines(rows, f"loss {epoch}1", f"loss {epoch}2", f"Epoch {epoch} done, accuracy 0.{epoch}")
    lines(rows, "step 3 other_loss 7")
    rows.close()
    assert series(package, "loss") == ([1, 2, 3, 4], [11, 12, 21, 22])
    assert series(package, "accuracy") == ([2, 4], [0.1, 0.2]) and series(package, "other_loss")[0] == [4]
    again = ProgramRows(package, 2)
    for epoch in (5, 6):
        lines(again, f"Epoch {epoch}", "loss 1", "loss 2", f"validation loss {epoch}")
    again.close()
    assert series(package, "loss")[1][-4:] == [1, 2, 1, 2]


def test_the_finest_source_counts_for_all(package: Path) -> None:
    rows = ProgramRows(package, 1)
    lines(rows, "epoch 700 acc 0.1")
    rows.add(Source.CALLS, 5, {"loss": 1.0})
    lines(rows, "epoch 701 acc 0.2")
    rows.add(Source.CALLS, 6, {"loss": 0.5})
    rows.add(Source.EVENTS, 2, {"other": 9.0})
    rows.close()
    assert series(package, "loss") == ([5, 6], [1.0, 0.5])
    assert series(package, "acc") == ([5], [0.2]) and series(package, "other") == ([6], [9.0])


def test_a_metric_has_one_source(package: Path) -> None:
    rows = ProgramRows(package, 1)
    rows.add(Source.CALLS, 1, {"loss": 1.0})
    lines(rows, "loss 7")
    rows.add(Source.CALLS, 2, {"loss": 0.5, "step": 3.0, "epoch": 1.0})
    rows.close()
    assert series(package, "loss") == ([1, 2], [1.0, 0.5])


def test_a_metric_that_is_printed_and_logged_is_one(package: Path) -> None:
    rows = ProgramRows(package, 1)
    for step in (10, 20):
        lines(rows, f"val_loss: {step}.0  Validation accuracy 0.5")
        rows.add(Source.EVENTS, step, {"val_loss": step / 10, "test_": 1.0, "val_a/b": 2.0, "train": 3.0})
    rows.close()
    assert series(package, "valid/loss")[0][-2:] == [10, 20]
    assert series(package, "valid/loss")[1][-2:] == [1.0, 2.0]
    names = {name for row in written(package) for name in row}
    assert not names.intersection({"val_loss"}) and {"valid/accuracy", "test_", "val_a/b", "train"} < names


def test_a_session_hides_what_it_repeats(package: Path) -> None:
    rows = ProgramRows(package, 1)
    lines(rows, *(f"step {s} loss {s}" for s in range(1, 6)))
    rows.close()
    again = ProgramRows(package, 2, last_step=5)
    lines(again, "step 4 loss 40", "step 5 loss 50")
    again.close()
    assert written(package, 2)[0]["start_step"] == 3
    assert series(package, "loss") == ([1, 2, 3, 4, 5], [1, 2, 3, 40, 50])


def test_bars_of_epochs_around_bars_of_batches(package: Path) -> None:
    rows = ProgramRows(package, 1)
    for epoch in range(2):
        lines(rows, f"{epoch * 50}%|#| {epoch}/2 [00:00<00:01, loss=1]")
        lines(rows, *(f"{s * 25}%|#| {s}/4 [00:00<00:01, loss={s}]" for s in (1, 4)))
    rows.close()
    assert series(package, "loss")[0] == sorted(series(package, "loss")[0])
    assert series(package, "loss")[0][-1] == 8


def test_steps_that_no_format_can_hold(package: Path) -> None:
    rows = ProgramRows(package, 1)
    lines(rows, "step 99999999999999999999 loss 1", "epoch 1e300 loss 2")
    rows.close()
    assert all(row.get("step", 0) <= 2**53 for row in written(package))
