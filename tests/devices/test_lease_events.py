"""The end of a lease is reported at once."""

from __future__ import annotations

import os
import select
import signal
import sys
from pathlib import Path

import pytest

from roost.devices import lease_files
from roost.devices.demand import CardDemand, DemandFile, DemandRecord
from roost.devices.lease_events import LeaseEvents
from tests.devices.leasing import NEEDS_ROOT, NOBODY, Child, card, shared_root, take

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs inotify")


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ROOST_LEASES", str(tmp_path / "leases"))
    return tmp_path / "leases"


@pytest.fixture
def changes(root: Path) -> LeaseEvents:
    lease_files.make_shared_folder(root)
    found = LeaseEvents()
    found.watch()
    return found


def comes(changes: LeaseEvents, seconds: float = 5.0) -> bool:
    assert changes.fd is not None
    came = bool(select.select([changes.fd], [], [], seconds)[0])
    changes.drain()
    return came


def test_the_end_of_a_lease_comes_when_the_last_copy_is_closed(changes: LeaseEvents) -> None:
    lease = take(card())
    assert comes(changes), "the card was never used before: its folder is new"
    changes.watch()
    copy = os.dup(lease.fds[0])
    lease.close()
    lease_files.live_leases("GPU-0")
    assert not comes(changes, 0), "neither a copy nor a look is an end"
    os.close(copy)
    assert comes(changes)
    assert lease_files.live_leases("GPU-0") == []
    changes.close()


def test_a_holder_that_is_killed_has_ended(changes: LeaseEvents) -> None:
    child = Child(lambda: take(card()))
    changes.watch()
    changes.drain()
    os.kill(child.pid, signal.SIGKILL)
    assert comes(changes)
    os.waitpid(child.pid, 0)
    changes.close()


@NEEDS_ROOT
def test_another_user_gets_the_event_too(tmp_path: Path, changes: LeaseEvents) -> None:
    shared_root(tmp_path)
    lease = take(card())

    def wait() -> None:
        theirs = LeaseEvents()
        theirs.watch()
        lease.close()  # its copy
        os.write(its_ready, b"1")
        assert comes(theirs)

    ready, its_ready = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            wait()
            code = 0
        finally:
            os._exit(code)
    os.read(ready, 1)
    lease.close()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    changes.close()


def test_demand_of_another_queue_is_an_event(changes: LeaseEvents) -> None:
    post = DemandFile()
    post.publish(DemandRecord(wants=(CardDemand(cards=1, since=0.0),)))
    assert comes(changes)
    changes.watch()
    post.publish(DemandRecord(wants=()))
    assert comes(changes)
    post.withdraw()
    assert comes(changes)
    changes.close()


def test_without_a_folder_and_once_closed_there_is_nothing(root: Path) -> None:
    changes = LeaseEvents()
    changes.watch()
    assert not comes(changes, 0)
    changes.close()
    changes.close()
    changes.drain()
    assert changes.fd is None
