from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import roost
from roost.base.system import process_identity
from roost.supervisor.processes.process_tree import descendants, kill_tree

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="walks /proc")

# A root with two children, one of them in its own session with a child that is stopped.
TREE = """
import os, signal
def branch(*then):
    if os.fork() == 0:
        for act in then: act()
        os.write(1, b'1')
        while True: signal.pause()
signal.signal(signal.SIGTERM, signal.SIG_IGN)
branch()
branch(os.setsid, branch)
branch(lambda: (os.write(1, b'1'), os.kill(os.getpid(), signal.SIGSTOP)))
while True: signal.pause()
"""
NUM_BELOW = 4
SRC = str(Path(roost.__file__).parents[1])


@contextmanager
def tree() -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen([sys.executable, "-I", "-S", "-c", TREE], stdout=subprocess.PIPE)
    assert child.stdout is not None
    with child.stdout:
        child.stdout.read(NUM_BELOW)
        yield child
    child.kill()
    child.wait()


@pytest.fixture(params=["kernel", "scan"])
def walked_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to find children: the kernel's file, and a look at all processes where it has none."""
    if request.param == "scan":
        monkeypatch.setattr(os, "access", lambda path, mode: False)
    return str(request.param)


@pytest.mark.usefixtures("walked_by")
def test_descendants_and_their_end() -> None:
    with tree() as root:
        below = descendants(root.pid)
        assert len(below) == NUM_BELOW
        assert root.pid not in below
        started = {pid: process_identity.start_ticks(pid) for pid in below}
        assert kill_tree(root.pid, include_root=False) == NUM_BELOW
        assert descendants(root.pid) == []
        assert not any(
            process_identity.is_alive(pid, ticks, process_identity.boot_id())
            for pid, ticks in started.items()
        )
        root.send_signal(signal.SIGCONT)
        assert root.poll() is None


@pytest.mark.usefixtures("walked_by")
def test_the_root_too_and_its_status_is_reported() -> None:
    reaped: dict[int, int] = {}
    with tree() as root:
        started = {pid: process_identity.start_ticks(pid) for pid in [root.pid, *descendants(root.pid)]}
        assert kill_tree(root.pid, include_root=True, on_reaped=reaped.__setitem__) == NUM_BELOW + 1
        assert not any(
            process_identity.is_alive(pid, ticks, process_identity.boot_id())
            for pid, ticks in started.items()
        )
    assert reaped == {root.pid: signal.SIGKILL}


def test_without_pidfds(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int, flags: int = 0) -> int:
        raise OSError(errno.ENOSYS, "no pidfds")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    with tree() as root:
        assert kill_tree(root.pid, include_root=True) == NUM_BELOW + 1


def test_a_missing_process() -> None:
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", ""]) as child:
        child.wait()
    assert descendants(child.pid) == []
    assert kill_tree(child.pid, include_root=True) == 0


def test_the_caller_is_spared() -> None:
    """A caller below the root ends its siblings, not itself."""
    caller = f"import sys; sys.path.insert(0, {SRC!r})\n" + (
        "import os, signal\n"
        "from roost.supervisor.processes.process_tree import kill_tree\n"
        "if os.fork() == 0: signal.pause()\n"
        "print(kill_tree(os.getppid(), include_root=False))"
    )
    parent = (
        f"import subprocess, sys; subprocess.run([sys.executable, '-I', '-S', '-c', {caller!r}], check=True)"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", parent], capture_output=True, timeout=100, check=True
    )
    assert done.stdout.strip() == b"1"
