from __future__ import annotations

from pathlib import Path

import pytest

from roost.base import durable
from roost.train.mirrors.csv_sink import CsvSink
from roost.train.mirrors.record_feed import RecordFeed
from tests.train.mirrors.recorded import by_step, folded, session, show_all, table


def feed_of(package: Path) -> RecordFeed:
    feed = RecordFeed(package, CsvSink(package / "tables" / "m.csv"))
    feed.open()
    return feed


def read(package: Path) -> list[tuple[int, dict[str, float]]]:
    return table(package / "tables" / "m.csv")


def test_every_row_is_a_line_bit_for_bit(tmp_path: Path) -> None:
    session(tmp_path, 1, 0, [1, 3, 1_000_000_007])
    show_all(tmp_path, 3)  # a table has no place for them
    feed_of(tmp_path)
    assert read(tmp_path) == folded(tmp_path)
    first = (tmp_path / "tables" / "m.csv").read_text().splitlines()[0]
    assert first == "step,epoch,time,train/loss,train/accuracy,perf/other_ms"


def test_it_grows_and_is_widened_by_a_metric_that_comes_late(tmp_path: Path) -> None:
    writer = session(tmp_path, 1, 0, [1, 2])
    feed = feed_of(tmp_path)
    inode = (tmp_path / "tables" / "m.csv").stat().st_ino
    writer.row(3, 0, {"train/loss": 1.0})
    feed.send_new()
    assert read(tmp_path) == folded(tmp_path)
    assert (tmp_path / "tables" / "m.csv").stat().st_ino == inode, "appended"
    writer.row(4, 0, {"train/loss": 1.0, "valid/loss": float("-inf"), 'odd, "name"': float("inf")})
    writer.row(5, 0, {"valid/loss": 1e-320})
    feed.send_new()
    assert read(tmp_path) == folded(tmp_path)


def test_what_is_taken_back_is_gone(tmp_path: Path) -> None:
    session(tmp_path, 1, 0, [1, 2, 3])
    feed = feed_of(tmp_path)
    writer = session(tmp_path, 2, 2, [])
    feed.send_new()
    assert read(tmp_path) == folded(tmp_path) == folded(tmp_path)[:2]
    writer.row(3, 0, {"valid/loss": 2.0})
    feed.send_new()
    assert by_step(read(tmp_path)) == by_step(folded(tmp_path))


def test_an_empty_record_is_an_empty_table(tmp_path: Path) -> None:
    feed_of(tmp_path)
    assert (tmp_path / "tables" / "m.csv").read_text() == "step,epoch,time\n"


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = session(tmp_path, 1, 0, [1, 2])
    feed = feed_of(tmp_path)
    before = read(tmp_path)

    def full(operation: str, path: str) -> None:
        if operation == "write":
            raise OSError(28, "No space left on device")

    writer.row(3, 0, {"new": 1.0})
    monkeypatch.setattr(durable, "fault", full)
    with pytest.raises(OSError, match="No space"):
        feed.send_new()
    assert read(tmp_path) == before
    monkeypatch.undo()
    feed_of(tmp_path)
    assert read(tmp_path) == folded(tmp_path)


@pytest.mark.timeout(60)
def test_a_row_of_very_many_metrics_takes_seconds(tmp_path: Path) -> None:
    sink = CsvSink(tmp_path / "m.csv")
    sink.write_row({"step": 1, "epoch": 0, "time": 1.0, **{f"m{number}": 0.5 for number in range(100_000)}})
    sink.flush()
    assert len((tmp_path / "m.csv").read_text().splitlines()[0].split(",")) == 100_003
