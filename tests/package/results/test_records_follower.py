"""A history that grows is at each moment what `fold` reads anew."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from roost.package import records
from roost.package.records import RecordsWriter
from roost.package.results.records_follower import HistoryFollower, RowsFollower

KINDS = (["train/loss", "perf/other_ms", "stats/norm"], ["test/loss"])
"""Names of a row's values; of one step there may be one row of each."""


def same(growing: HistoryFollower, folder: Path) -> None:
    whole, now = records.fold(folder), growing.columns
    assert now.series == whole.series and now.perf == whole.perf and now.stats == whole.stats
    assert now.starts == whole.starts


@pytest.mark.parametrize("seed", range(5))
def test_it_is_what_fold_reads(tmp_path: Path, seed: int) -> None:
    chance, growing, step = random.Random(seed), HistoryFollower(tmp_path), 0
    assert not growing.update()
    for session in range(5):
        writer = RecordsWriter(tmp_path / f"{session}.jsonl", session=session, start_step=step)
        for _ in range(chance.randrange(12)):
            if chance.random() < 0.15:
                step = chance.randrange(step + 1)
                writer.go_back(step)
            else:
                step += chance.randrange(3)
                names = chance.choice(KINDS)
                writer.row(step, 1, {name: chance.choice([chance.random(), float("inf")]) for name in names})
            if chance.random() < 0.5:
                growing.update()
                same(growing, tmp_path)
        writer.close()
        step = chance.randrange(step + 1)
    growing.update()
    same(growing, tmp_path)


def test_each_byte_is_read_once(tmp_path: Path) -> None:
    writer, growing = RecordsWriter(tmp_path / "1.jsonl", session=1, start_step=0), HistoryFollower(tmp_path)
    writer.row(1, 1, {"train/loss": 1.0})
    assert growing.update()
    file = tmp_path / "1.jsonl"
    file.write_bytes(b" " * (file.stat().st_size - 1) + b"\n")  # reading it again would find nothing
    writer.row(2, 1, {"train/loss": 2.0})
    assert growing.update() and not growing.update()
    assert growing.columns.series == {"train/loss": ([1, 2], [1.0, 2.0])}
    writer.close()


def test_half_a_line_is_waited_for(tmp_path: Path) -> None:
    file, growing = tmp_path / "1.jsonl", HistoryFollower(tmp_path)
    file.write_text('{"session": 1, "start_step": 0}\n{"step": 1, "train/l')
    assert growing.update() and growing.columns.series == {}
    with file.open("a") as opened:
        opened.write('oss": 0.5}\n')
    assert growing.update() and growing.columns.series == {"train/loss": ([1], [0.5])}


def test_a_long_run_is_read_quickly_the_second_time(tmp_path: Path) -> None:
    rows = [{"step": step, "epoch": 1, "train/loss": 0.5} for step in range(1, 100_001)]
    (tmp_path / "0.jsonl").write_bytes(records.encode_records(rows, session=0))
    growing = HistoryFollower(tmp_path)
    growing.update()
    assert len(growing.columns.series["train/loss"][0]) == 100_000
    (tmp_path / "0.jsonl").unlink()  # nothing of it is needed any more
    assert not growing.update() and len(growing.columns.series["train/loss"][0]) == 100_000


def test_rows_of_all_sessions_each_once(tmp_path: Path) -> None:
    def marks() -> list[tuple[int, int]]:
        return [(session, row.get("start_step", row.get("step"))) for session, row in rows.new_rows()]

    rows = RowsFollower(tmp_path / "records")
    assert rows.new_rows() == []
    (tmp_path / "records").mkdir()
    first = RecordsWriter(tmp_path / "records" / "1.jsonl", session=1, start_step=0)
    first.row(1, 0, {"a": 1.0})
    assert marks() == [(1, 0), (1, 1)]
    first.row(2, 0, {"a": 1.0})
    for session, step in ((2, 2), (10, 3)):
        writer = RecordsWriter(tmp_path / "records" / f"{session}.jsonl", session=session, start_step=step)
        writer.row(step + 1, 0, {"a": 1.0})
        writer.close()
    assert marks() == [(1, 2), (2, 2), (2, 3), (10, 3), (10, 4)]
    (tmp_path / "records" / "notes.txt").write_text("mine")
    (tmp_path / "records" / "x.jsonl").write_text("mine")
    assert rows.new_rows() == []
    first.close()
