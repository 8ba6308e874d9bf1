from __future__ import annotations

import fcntl
import os
import tempfile
from pathlib import Path

import pytest

from roost.operations.sessions.scratch_folder import remove_abandoned, scratch_folder


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_folder_that_goes_away(place: Path) -> None:
    with pytest.raises(ValueError, match="x"), scratch_folder() as (path, fd):
        assert path.parent == place and os.fstat(fd).st_ino == path.stat().st_ino
        assert path.stat().st_mode & 0o777 == 0o700
        (path / "file").write_text("x")
        raise ValueError("x")
    assert list(place.iterdir()) == []


def test_what_a_killed_process_left_is_swept(place: Path) -> None:
    left, other = Path(tempfile.mkdtemp(prefix="roost-check-")), place / "mine"
    (left / "folder").mkdir()
    other.mkdir()
    file = place / "roost-check-file"
    file.touch()
    link = place / "roost-check-link"
    link.symlink_to(other)
    with scratch_folder() as (path, _):
        remove_abandoned()
        assert path.is_dir(), "in use"
    remove_abandoned()
    assert sorted(place.iterdir()) == sorted([other, file, link])


def test_a_folder_is_held_as_long_as_a_copy_of_its_descriptor(place: Path) -> None:
    with scratch_folder() as (path, fd):
        copy = os.dup(fd)
    path.mkdir()  # as if removing it had failed
    fresh = os.open(path, os.O_RDONLY)
    fcntl.flock(fresh, fcntl.LOCK_EX)
    remove_abandoned()
    assert path.is_dir()
    os.close(fresh)
    remove_abandoned()
    assert not path.exists()
    os.close(copy)


def test_hidden_beside_what_it_becomes(place: Path, tmp_path: Path) -> None:
    parent = tmp_path / "results"
    parent.mkdir()
    with scratch_folder(parent) as (path, _):
        assert path.parent == parent and path.name.startswith(".roost-unfinished-")
        remove_abandoned(parent)
        assert path.exists(), "it is held"
        left = parent / ".roost-unfinished-left"
        left.mkdir()
        remove_abandoned(parent)
        assert not left.exists()
    assert list(parent.iterdir()) == []
