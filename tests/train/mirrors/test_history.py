from __future__ import annotations

from pathlib import Path

from roost.train.mirrors.history import Media, Rows
from tests.train.mirrors.recorded import session, show


def test_each_line_once_over_sessions(tmp_path: Path) -> None:
    rows = Rows(tmp_path / "records")
    assert rows.new() == []
    writer = session(tmp_path, 1, 0, [1])
    assert [row.get("start_step", row.get("step")) for row in rows.new()] == [0, 1]
    writer.row(2, 0, {"a": 1.0})
    session(tmp_path, 2, 2, [3])
    session(tmp_path, 10, 3, [4])
    assert [row.get("start_step", row.get("step")) for row in rows.new()] == [2, 2, 3, 3, 4]
    (tmp_path / "records" / "notes.txt").write_text("mine")
    (tmp_path / "records" / "x.jsonl").write_text("mine")
    assert rows.new() == []


def test_media_are_found_once_and_when_they_are_made_anew(tmp_path: Path) -> None:
    media = Media(tmp_path / "media")
    assert media.new() == []
    show(tmp_path, 10, "a.txt")
    show(tmp_path, 9, "b.txt")
    assert [(one.step, one.path.name) for one in media.new()] == [(9, "b.txt"), (10, "a.txt")]
    assert media.new() == []
    show(tmp_path, 10, "c.txt")
    assert [one.path.name for one in media.new()] == ["c.txt"]
    show(tmp_path, 9, "b.txt", b"other")
    assert [one.path.name for one in media.new()] == ["b.txt"]


def test_what_is_no_medium(tmp_path: Path) -> None:
    show(tmp_path, 1, "a.txt")
    (tmp_path / "media" / "1" / ".b.txt.tmp-0123456789ab").write_text("half")
    (tmp_path / "media" / "1" / "folder").mkdir()
    (tmp_path / "media" / "1" / "link.txt").symlink_to("/etc/passwd")
    (tmp_path / "media" / "notes").mkdir()
    (tmp_path / "media" / "2").symlink_to("/etc")
    assert [one.path.name for one in Media(tmp_path / "media").new()] == ["a.txt"]
