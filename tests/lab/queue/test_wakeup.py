"""The socket that wakes the daemon."""

from __future__ import annotations

import select
import subprocess
import sys
from pathlib import Path

import pytest

from roost.lab.queue import wakeup


def test_a_sender_wakes_the_daemon_once(tmp_path: Path) -> None:
    with wakeup.listen(tmp_path) as bell:
        assert not wakeup.drain(bell)
        program = "import sys; from pathlib import Path; from roost.lab.queue import wakeup as wake; wake.send(Path(sys.argv[1]))"  # noqa: E501
        subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)
        wakeup.send(tmp_path)
        assert select.select([bell], [], [], 10)[0]
        assert wakeup.drain(bell)
        assert not wakeup.drain(bell)


def test_sending_without_a_daemon_has_no_effect(tmp_path: Path) -> None:
    wakeup.send(tmp_path)
    wakeup.listen(tmp_path).close()
    wakeup.send(tmp_path)
    wakeup.send(tmp_path / "gone")


def test_a_daemon_that_does_not_read_blocks_no_sender(tmp_path: Path) -> None:
    with wakeup.listen(tmp_path) as bell:
        for _ in range(2000):
            wakeup.send(tmp_path)
        assert wakeup.drain(bell)


def test_the_next_daemon_replaces_the_socket_of_a_killed_one(tmp_path: Path) -> None:
    old = wakeup.listen(tmp_path)
    with wakeup.listen(tmp_path) as bell:
        wakeup.send(tmp_path)
        assert wakeup.drain(bell)
        assert not wakeup.drain(old)
    old.close()


def test_a_path_longer_than_a_sockets_may_be(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    with wakeup.listen(folder) as bell:
        wakeup.send(folder)
        assert wakeup.drain(bell)


def test_a_folder_that_is_not_there_cannot_be_listened_in(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        wakeup.listen(tmp_path / "gone")
