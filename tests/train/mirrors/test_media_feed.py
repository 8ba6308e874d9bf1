from __future__ import annotations

from pathlib import Path

from roost.train.mirrors.media_feed import MediaFeed
from tests.train.mirrors.recorded import show


def test_media_are_found_once_and_when_they_are_made_anew(tmp_path: Path) -> None:
    media = MediaFeed(tmp_path / "media")
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
    assert [one.path.name for one in MediaFeed(tmp_path / "media").new()] == ["a.txt"]
