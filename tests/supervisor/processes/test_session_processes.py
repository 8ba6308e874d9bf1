"""What supervisor and guard do to their descendants."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import roost
from roost.supervisor.processes import session_processes
from tests.supervisor.real_sessions import Session

SRC = str(Path(roost.__file__).parents[1])

# Its child's parent ends; the signal of that is what the child waits for, and its new parent is we.
ORPHAN = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from roost.base.system import prctl
from roost.supervisor.processes import session_processes
prctl.set_child_subreaper(True)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
(read, write), ours = os.pipe(), os.getpid()
if os.fork() == 0:
    if os.fork() == 0:
        prctl.set_parent_death_signal(signal.SIGUSR1)
        os.write(write, b"1")
        print(signal.sigwait([signal.SIGUSR1]).name, os.getppid() == ours, flush=True)
        signal.pause()
    os.read(read, 1)
    os._exit(0)
os.wait()
if sys.stdin.read(): print(session_processes.kill_all(None))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")
def test_an_orphan_is_signalled_adopted_and_killed() -> None:
    argv = [sys.executable, "-I", "-S", "-c", ORPHAN, SRC]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None and child.stdout is not None
        assert child.stdout.readline() == "SIGUSR1 True\n"
        assert child.communicate("end it", timeout=100)[0] == "[]\n"
    assert child.returncode == 0


def test_a_lease_records_until_when_its_card_was_used(session: Session) -> None:
    path = session.folder / "lease"
    path.touch()
    os.utime(path, (1, 1))
    fd = os.open(path, os.O_RDONLY)
    closed = os.dup(fd)
    os.close(closed)
    session_processes.touch_leases(session.spec("")._replace(lease_fds=(closed, fd)))
    os.close(fd)
    assert path.stat().st_mtime > 1
