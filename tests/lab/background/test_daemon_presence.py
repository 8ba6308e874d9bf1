from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from roost import __version__
from roost.base.errors import Refused
from roost.base.system import state_folder
from roost.lab.background import daemon_presence
from tests.messages import Messages


def take(folder: Path) -> int:
    """Becomes the daemon."""
    fd = daemon_presence.lock(folder)
    daemon_presence.write_record(folder)
    return fd


def test_who_has_the_lock_is_the_daemon_and_tells_who_it_is(tmp_path: Path, messages: Messages) -> None:
    folder = tmp_path / "lab"
    fd = take(folder)
    about = daemon_presence.find_daemon(folder)
    assert about is not None and about.is_alive
    assert (about.pid, about.version) == (os.getpid(), __version__)
    with pytest.raises(Refused, match=rf"\b{os.getpid()}\b") as refused:
        take(folder)
    messages.check(refused.value)
    os.close(fd)
    os.close(take(folder))


def test_one_that_has_the_lock_so_newly_that_it_has_yet_to_tell_is_waited_for(tmp_path: Path) -> None:
    folder = tmp_path / "lab"
    fd = take(folder)
    (folder / "daemon.json").rename(folder / "late")
    told = threading.Timer(0.05, (folder / "late").rename, [folder / "daemon.json"])
    told.start()
    with pytest.raises(Refused, match=f"pid {os.getpid()}"):
        take(folder)
    told.join()
    os.close(fd)


def test_a_queue_or_a_lock_that_was_replaced_is_not_the_daemons(tmp_path: Path) -> None:
    folder = tmp_path / "lab"
    state_folder.prepare(folder)
    (folder / "lab.db").touch()
    fd = take(folder)
    about = daemon_presence.find_daemon(folder)
    assert about is not None and about.queue == daemon_presence.identity(folder / "lab.db") != ""
    assert daemon_presence.is_in_place(folder, fd, about.queue)
    for name in ("lab.db", "daemon.lock"):
        (folder / name).rename(folder / "away")
        assert not daemon_presence.is_in_place(folder, fd, about.queue)
        (folder / name).touch()
        assert not daemon_presence.is_in_place(folder, fd, about.queue)
        (folder / "away").rename(folder / name)
        assert daemon_presence.is_in_place(folder, fd, about.queue)
    os.close(fd)
