"""The rows of a run that grows."""

from __future__ import annotations

from pathlib import Path

from roost.package.records import RecordsWriter
from roost.package.results.records_follower import RowsFollower


def test_each_byte_is_read_once_and_half_a_line_is_waited_for(tmp_path: Path) -> None:
    file, rows = tmp_path / "1.jsonl", RowsFollower(tmp_path)
    file.write_text('{"session": 1, "start_step": 0}\n{"step": 1, "train/l')
    assert [row.get("start_step") for _, row in rows.new_rows()] == [0]
    file.write_bytes(b" " * file.stat().st_size)  # reading it again would find nothing
    with file.open("a") as opened:
        opened.write('oss": 0.5}\n')
    assert rows.new_rows() == [(1, {"step": 1, "train/loss": 0.5})] and rows.new_rows() == []


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
