from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from roost import __version__
from roost.base.errors import Refused
from roost.lab import place, presence


def take(folder: Path, *, now: float) -> int:
    """Becomes the daemon."""
    fd = presence.lock(folder)
    presence.tell(folder, now=now)
    return fd


def test_who_has_the_lock_is_the_daemon_and_tells_who_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "lab"
    fd = take(folder, now=7.0)
    about = presence.about(folder)
    assert about is not None and about.lives
    assert (about.pid, about.version, about.started) == (os.getpid(), __version__, 7.0)
    with pytest.raises(Refused, match=f"has a daemon already .pid {os.getpid()}."):
        take(folder, now=8.0)
    os.close(fd)
    os.close(take(folder, now=9.0))


def test_one_that_has_the_lock_so_newly_that_it_has_yet_to_tell_is_waited_for(tmp_path: Path) -> None:
    folder = tmp_path / "lab"
    fd = take(folder, now=7.0)
    (folder / "daemon.json").rename(folder / "late")
    told = threading.Timer(0.05, (folder / "late").rename, [folder / "daemon.json"])
    told.start()
    with pytest.raises(Refused, match=f"pid {os.getpid()}"):
        take(folder, now=8.0)
    told.join()
    os.close(fd)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}', '{"pid": "one"}'])
def test_what_cannot_be_read_is_nobody(tmp_path: Path, text: str) -> None:
    place.prepare(tmp_path / "lab")
    (tmp_path / "lab" / "daemon.json").write_text(text)
    assert presence.about(tmp_path / "lab") is None


def test_another_process_of_the_same_pid_is_not_the_daemon(tmp_path: Path) -> None:
    os.close(take(tmp_path / "lab", now=7.0))
    path = tmp_path / "lab" / "daemon.json"
    path.write_text(path.read_text().replace('"start_ticks":', '"start_ticks":1'))
    assert presence.about(tmp_path / "lab") is None


def test_a_queue_or_a_lock_that_was_replaced_is_not_the_daemons(tmp_path: Path) -> None:
    folder = tmp_path / "lab"
    place.prepare(folder)
    (folder / "lab.db").touch()
    fd = take(folder, now=7.0)
    about = presence.about(folder)
    assert about is not None and about.queue == presence.identity(folder / "lab.db") != ""
    assert presence.is_in_place(folder, fd, about.queue)
    for name in ("lab.db", "daemon.lock"):
        (folder / name).rename(folder / "away")
        assert not presence.is_in_place(folder, fd, about.queue)
        (folder / name).touch()
        assert not presence.is_in_place(folder, fd, about.queue)
        (folder / "away").rename(folder / name)
        assert presence.is_in_place(folder, fd, about.queue)
    os.close(fd)
