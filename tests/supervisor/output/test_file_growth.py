from __future__ import annotations

import os
import select
import sys
from pathlib import Path

import pytest

from roost.supervisor.output.file_growth import FileGrowth

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")


def has_event(growth: FileGrowth) -> bool:
    poller = select.poll()
    poller.register(growth.fd, select.POLLIN)
    return bool(poller.poll(0))


def test_one_word_for_each_time_it_is_expected(tmp_path: Path) -> None:
    with open(tmp_path / "out", "ab", buffering=0) as file:
        growth = FileGrowth(file.fileno())
        assert growth.fd == -1, "its end would take longer than that of a run that does nothing"
        file.write(b"before")
        assert growth.watch_next_write()
        assert not has_event(growth)
        for _ in range(3):
            file.write(b"x")
        assert has_event(growth)
        growth.clear()
        file.write(b"unexpected")
        assert not has_event(growth)
        (tmp_path / "out").unlink()  # the run still prints into it
        assert growth.watch_next_write()
        file.write(b"again")
        assert has_event(growth)
    os.close(growth.fd)


def test_without_inotify(tmp_path: Path) -> None:
    with open(tmp_path / "out", "ab") as file:
        growth = FileGrowth(file.fileno())
        assert growth.watch_next_write()
    os.close(growth.fd)
    assert not growth.watch_next_write(), "the descriptor is of nothing"
    growth.fd = -1
    assert not growth.watch_next_write()
