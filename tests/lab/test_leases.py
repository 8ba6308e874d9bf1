"""The leases of a session: free when nothing of it lives that watches over it, and not before."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from roost.base.errors import RoostError
from roost.base.system import process_identity
from roost.devices import lease_files
from roost.devices.card import Card
from roost.devices.lease import LeaseHolder, Leases, take
from roost.supervisor.session_spec import SessionSpec
from tests.supervisor.real_sessions import Session
from tests.waiting import wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs a child subreaper and /proc")


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ROOST_LEASES", str(tmp_path / "leases"))
    return tmp_path / "leases"


def leased(session: Session, spec: SessionSpec) -> subprocess.Popen[bytes]:
    """Starts it with a lease of two cards; gives its guard."""
    lease = _lease()
    try:
        return session.start_spec(spec._replace(lease_fds=lease.fds))
    finally:
        lease.close()


def _lease() -> Leases:
    return take(
        [Card(n, f"GPU-{n}", "RTX 4090", 24576, 24576) for n in (0, 1)], None, LeaseHolder.this_process()
    )


def num_held() -> int:
    return len(lease_files.live_leases("GPU-0")) + len(lease_files.live_leases("GPU-1"))


def forget_times(root: Path) -> None:
    for file in root.glob("*/*.json"):
        os.utime(file, (0, 0))


def ends_are_noted(root: Path) -> bool:
    return all(
        not lease.is_live and lease.ended > lease.record.since for lease in lease_files.all_leases(root)
    )


def is_stopped(pid: int) -> bool:
    stat = process_identity.read_stat(pid)
    return stat is not None and stat.state == "T"


def test_they_are_held_as_long_as_it_runs(session: Session, root: Path) -> None:
    os.mkfifo(session.folder / "go")
    child = leased(session, session.spec("here('ready'); open('go').read(); end('succeeded', 0)"))
    session.wait_until("ready")
    assert num_held() == 2
    forget_times(root)
    (session.folder / "go").write_text("")
    assert child.wait(100) == 0
    assert num_held() == 0
    assert ends_are_noted(root)


def test_a_killed_supervisor_leaves_them_to_the_guard_until_all_has_ended(
    session: Session, root: Path
) -> None:
    child = leased(session, session.spec("daemons(3); here('ready'); forever()"))
    session.wait_until("ready")
    child.send_signal(signal.SIGSTOP)
    wait_for(lambda: is_stopped(child.pid))
    forget_times(root)
    os.kill(session.supervisor_pid, signal.SIGKILL)
    wait_for(lambda: (stat := process_identity.read_stat(session.supervisor_pid)) is None or stat.ended)
    assert session.living() != [] and num_held() == 2
    child.send_signal(signal.SIGCONT)
    assert child.wait(100) == 1
    assert session.living() == [] and num_held() == 0
    assert ends_are_noted(root)


def test_a_killed_guard_leaves_them_to_the_supervisor(session: Session, root: Path) -> None:
    os.mkfifo(session.folder / "go")
    child = leased(session, session.spec("here('ready'); open('go').read(); end('succeeded', 0)"))
    session.wait_until("ready")
    child.kill()
    child.wait(100)
    assert num_held() == 2
    (session.folder / "go").write_text("")
    wait_for(lambda: num_held() == 0)
    assert session.record()["state"] == "succeeded"


def test_with_both_killed_they_are_free_whatever_is_left(session: Session) -> None:
    """The worker has no copy, nor has what it leaves behind."""
    child = leased(session, session.spec("daemons(3); here('ready'); forever()"))
    session.wait_until("ready")
    child.send_signal(signal.SIGSTOP)
    wait_for(lambda: is_stopped(child.pid))
    os.kill(session.supervisor_pid, signal.SIGKILL)
    child.kill()
    child.wait(100)
    wait_for(lambda: num_held() == 0)
    assert len(session.living()) >= 3


def test_they_are_marked_while_it_runs(session: Session, root: Path) -> None:
    """So that what it used is known though all of it is killed, and nobody takes them for old files."""
    lease = _lease()
    forget_times(root)
    child = session.start_spec(session.spec("forever()")._replace(lease_fds=lease.fds))
    lease.close()
    wait_for(lambda: all(found.ended > found.record.since for found in lease_files.all_leases(root)))
    assert num_held() == 2
    child.send_signal(signal.SIGQUIT)
    assert child.wait(100) == 130


def test_a_start_that_fails_keeps_none(session: Session) -> None:
    nowhere = str(session.folder / "no" / "where")
    with pytest.raises(RoostError, match="session 1 "):
        leased(session, session.spec("forever()")._replace(output=nowhere))
    assert num_held() == 0


def test_they_outlast_a_restart(session: Session) -> None:
    (session.folder / "sessions" / "1.request.json").write_text(json.dumps({"session": 1}))
    code = "if sys.argv[-1] == '1': os._exit(3)\nhere('second'); forever()"
    spec = session.spec(code)
    child = leased(session, spec._replace(argv=[*spec.argv, "1"], restart=1))
    session.wait_until("second")
    assert num_held() == 2
    child.send_signal(signal.SIGQUIT)
    assert child.wait(100) == 130
    assert num_held() == 0
