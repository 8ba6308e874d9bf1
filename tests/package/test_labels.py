"""Tags, notes and stars: kept whole by many writers at once, read whatever the file holds."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from roost.base import durable
from roost.base.errors import Refused, UsageError
from roost.package import labels
from roost.package.labels import Labels
from tests.operations.packages import package

ADD = """
import sys
from pathlib import Path
from roost.package import labels
for number in range(20):
    labels.add_tags(Path(sys.argv[1]), [f"{sys.argv[2]}-{number}"])
"""


def test_labels_are_kept_in_the_order_of_their_addition(tmp_path: Path) -> None:
    path = package(tmp_path).path
    assert labels.read(path) == Labels()
    labels.add_tags(path, ["lr-study", "baseline"])
    labels.add_tags(path, ["baseline", "a/b:c+d.e"])
    assert labels.remove_tags(path, ["lr-study", "absent"]).tags == ["baseline", "a/b:c+d.e"]
    labels.set_note(path, "two\nlines \x1b[31m")
    labels.set_starred(path, True)
    assert labels.read(path) == Labels(
        tags=["baseline", "a/b:c+d.e"], note="two\nlines \x1b[31m", starred=True
    )
    labels.set_note(path, None)
    assert labels.read(path).note is None


def test_writers_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    path = package(tmp_path).path
    writers = [
        subprocess.Popen([sys.executable, "-c", ADD, str(path), name]) for name in ("one", "two", "three")
    ]
    assert [one.wait(timeout=120) for one in writers] == [0, 0, 0]
    assert sorted(labels.read(path).tags) == sorted(
        f"{name}-{number}" for name in ("one", "two", "three") for number in range(20)
    )


def test_a_session_that_sweeps_unfinished_files_costs_no_label(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, swept = package(tmp_path).path, []

    def sweep_once(operation: str, name: str) -> None:
        if operation == "rename" and name.endswith(labels.NAME) and not swept:
            swept.append(name)
            durable.sweep(path)

    monkeypatch.setattr(durable, "fault", sweep_once)
    assert labels.add_tags(path, ["baseline"]).tags == ["baseline"]
    assert swept and labels.read(path).tags == ["baseline"]


def test_a_full_disk_leaves_the_labels_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = package(tmp_path).path
    labels.add_tags(path, ["baseline"])

    def full(operation: str, name: str) -> None:
        if operation == "write":
            raise OSError(errno.ENOSPC, "No space left on device", name)

    monkeypatch.setattr(durable, "fault", full)
    with pytest.raises(OSError, match="No space"):
        labels.add_tags(path, ["more"])
    assert labels.read(path).tags == ["baseline"]


@pytest.mark.parametrize("tag", ["", "-debug", "+best", "a b", "a,b", "x" * 65, "a\x1b", "a\n", "'", "*"])
def test_what_is_no_tag_is_refused(tmp_path: Path, tag: str) -> None:
    path = package(tmp_path).path
    with pytest.raises(UsageError) as caught:
        labels.add_tags(path, [tag])
    assert len(str(caught.value).splitlines()) == 1
    assert labels.read(path) == Labels()


def test_ten_thousand_tags_and_a_book_as_note_are_refused(tmp_path: Path) -> None:
    path = package(tmp_path).path
    with pytest.raises(UsageError):
        labels.add_tags(path, [f"tag-{number}" for number in range(10_000)])
    with pytest.raises(UsageError):
        labels.set_note(path, "x" * (labels.MAX_NOTE_BYTES + 1))
    with pytest.raises(UsageError):
        labels.set_note(path, "not \udc80 UTF-8")
    assert labels.read(path) == Labels()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[1]",
        b"\xff",
        b"[" * 100_000,
        b'{"tags": [1, "a b", "\\u001b"], "note": 3, "starred": "x"}',
    ],
)
def test_a_file_of_another_program_is_read_as_no_labels(tmp_path: Path, content: bytes) -> None:
    path = package(tmp_path).path
    (path / labels.NAME).write_bytes(content)
    assert labels.read(path) == Labels()


def test_the_file_of_a_newer_roost_is_read_and_never_replaced(tmp_path: Path) -> None:
    path = package(tmp_path).path
    newer = json.dumps({"format": 2, "tags": ["kept"], "colour": "red"})
    (path / labels.NAME).write_text(newer)
    assert labels.read(path).tags == ["kept"]
    with pytest.raises(Refused):
        labels.add_tags(path, ["more"])
    assert (path / labels.NAME).read_text() == newer


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    path = package(tmp_path).path
    (tmp_path / "other").write_text("mine")
    (path / labels.NAME).symlink_to(tmp_path / "other")
    with pytest.raises(Refused):
        labels.set_starred(path, True)
    assert (tmp_path / "other").read_text() == "mine"


def test_each_change_renews_the_stamp_of_the_sessions_folder(tmp_path: Path) -> None:
    path = package(tmp_path).path
    later = time.time_ns() + 10**12  # a clock that was set back meanwhile
    os.utime(path / "sessions", ns=(later, later))
    labels.set_starred(path, True)
    assert (path / "sessions").stat().st_mtime_ns > later


def test_a_process_that_keeps_the_lock_for_ever_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = package(tmp_path).path
    labels.add_tags(path, ["one"])
    monkeypatch.setattr(labels, "_LOCK_SECONDS", 0.05)
    with open(path / "_labels.json") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(Refused, match="another process holds the lock"):
            labels.add_tags(path, ["two"])
    assert labels.add_tags(path, ["two"]).tags == ["one", "two"]


@pytest.mark.parametrize(
    "body",
    [
        {"tags": [f"t{number}" for number in range(10_000)]},
        {"tags": ["good", "\x1b[31m"]},
        {"note": "n" * (labels.MAX_NOTE_BYTES + 1)},
        {"starred": 1.5},
    ],
)
def test_what_an_editor_has_written_is_not_lost_in_part(tmp_path: Path, body: dict[str, object]) -> None:
    path = package(tmp_path).path
    text = json.dumps({"format": 1, **body})
    (path / "_labels.json").write_text(text)
    with pytest.raises(Refused, match="did not write"):
        labels.set_starred(path, True)
    assert (path / "_labels.json").read_text() == text


def test_a_fifo_in_its_place(tmp_path: Path) -> None:
    path = package(tmp_path).path
    os.mkfifo(path / "_labels.json")
    with pytest.raises(Refused, match="did not write"):
        labels.add_tags(path, ["one"])
    assert labels.read(path) == Labels()
