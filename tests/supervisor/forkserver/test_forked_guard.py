"""Guards from a template: as those that are started, and nothing is lost with it."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from roost.base.errors import RoostError
from roost.base.system import process_identity
from roost.supervisor import guard_start as starting
from roost.supervisor.forkserver.forked_guard import GUARD_COMMAND, ForkedGuard, GuardTemplate
from tests.supervisor.real_sessions import Session
from tests.waiting import wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")

FOREVER = "here('ready'); forever()"


@pytest.fixture
def template() -> Iterator[GuardTemplate]:
    with closing(GuardTemplate()) as template:
        yield template


def fork(session: Session, template: GuardTemplate | None, code: str = FOREVER) -> starting.StartingSession:
    """A session whose guard holds its lock; its supervisor has come up, or has said why not."""
    lock_fd = os.open(session.folder / "lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(lock_fd, fcntl.LOCK_EX)
        return starting.spawn_guard(session.spec(code), lock_fd=lock_fd, template=template)
    finally:
        os.close(lock_fd)


def end(session: Session) -> dict[str, Any]:
    record = session.record()
    process_identity.send_signal(signal.SIGQUIT, record["pid"], record["start_ticks"], record["boot_id"])
    wait_for(lambda: not session.locked())
    wait_for(
        lambda: (
            not process_identity.is_alive(record["guard_pid"], record["guard_start_ticks"], record["boot_id"])
        )
    )
    return session.record()


def described(pid: int) -> dict[str, Any]:
    """The properties of a process, from the kernel, that could depend on how it was started."""
    proc = Path(f"/proc/{pid}")
    lines = (proc / "status").read_text().splitlines()
    status = dict(line.split(":", 1) for line in lines)
    fields = (proc / "stat").read_text().rpartition(")")[2].split()
    return {
        "argv": (proc / "cmdline").read_bytes(),
        "name": status["Name"],
        "environment": re.sub(rb"(ROOST_\w+_FD)=\d+", rb"\1", (proc / "environ").read_bytes()),
        "cwd": (proc / "cwd").readlink(),
        "limits": (proc / "limits").read_text(),
        "oom": (proc / "oom_score_adj").read_text(),
        "nice": fields[16],
        "leads its session": int(fields[3]) == pid,
        "leads its group": int(fields[2]) == pid,
        "fds": sorted(kind_of(fd) for fd in (proc / "fd").iterdir()),
        **{
            name: status[name]
            for name in ("Umask", "SigBlk", "SigIgn", "SigCgt", "Threads", "Groups", "CapEff")
        },
    }


def kind_of(fd: Path) -> str:
    """What a descriptor is, without the numbers that each has of its own."""
    return fd.readlink().as_posix().partition(":[")[0]


def people(session: Session) -> dict[str, dict[str, Any]]:
    """Guard, supervisor and worker, once nothing of them changes any more."""
    session.wait_until("ready")
    record = session.record()
    pids = {name: record[f"{name}_pid"] for name in ("guard", "worker")} | {"supervisor": record["pid"]}
    wait_for(lambda: all((process_identity.read_stat(pid) or gone).state == "S" for pid in pids.values()))
    return {name: described(pid) for name, pid in pids.items()}


gone = process_identity.ProcessStat("X", 0, 0, 0)


def test_it_is_as_one_that_was_started(session: Session, template: GuardTemplate) -> None:
    started = fork(session, None)
    started.wait_until_recorded()
    found = people(session)
    end(session)
    assert not isinstance(started.guard, ForkedGuard)
    started.guard.wait()
    for name in ("ready", "sessions/1.json"):
        (session.folder / name).unlink()
    forked = fork(session, template)
    forked.wait_until_recorded()
    assert isinstance(forked.guard, ForkedGuard)
    assert people(session) == found
    assert end(session)["state"] == "stopped"


def test_it_ends_as_its_session_does_and_leaves_no_descriptor(
    session: Session, template: GuardTemplate
) -> None:
    template.open()
    before = len(list(Path("/proc/self/fd").iterdir()))
    coming = fork(session, template, "end('succeeded', 0)")
    assert isinstance(coming.guard, ForkedGuard)
    coming.wait_until_recorded()
    assert (
        coming.guard.wait() == 1 and coming.guard.poll() == 1
    )  # a child of the daemon: its exit status is unknown here
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    wait_for(lambda: not session.locked())
    assert session.record()["state"] == "succeeded"


def test_a_start_that_fails_says_why_and_leaves_nothing(session: Session, template: GuardTemplate) -> None:
    spec = session.spec(FOREVER)._replace(output=str(session.folder / "no" / "where"))
    coming = starting.spawn_guard(spec, lock_fd=None, template=template)
    with pytest.raises(RoostError, match=r"session 1 .*No such file or directory"):
        coming.wait_until_recorded()
    assert isinstance(coming.guard, ForkedGuard) and session.living() == []


def test_one_that_comes_up_too_late_is_ended(session: Session, template: GuardTemplate) -> None:
    coming = starting.spawn_guard(session.spec(FOREVER), lock_fd=None, template=template, timeout_seconds=0.0)
    with pytest.raises(RoostError, match="0 s"):
        coming.wait_until_recorded()
    wait_for(lambda: session.living() == [])


def test_its_guards_continue_without_it(session: Session, template: GuardTemplate) -> None:
    fork(session, template).wait_until_recorded()
    session.wait_until("ready")
    template.close()
    assert session.locked() and "guard_lost" not in end(session)


def test_without_it_a_guard_is_started_and_the_next_comes_from_another(
    session: Session, template: GuardTemplate
) -> None:
    template.open()
    assert template._process is not None
    template._process.kill()
    template._process.wait()
    coming = fork(session, template)
    coming.wait_until_recorded()
    assert not isinstance(coming.guard, ForkedGuard)
    end(session)
    coming.guard.wait()
    forked = template.fork([])
    assert forked is not None
    with forked.stdin, forked.stderr, closing(forked):
        forked.send_signal(signal.SIGKILL)
        forked.wait()


def test_one_that_does_not_answer_is_not_waited_for(
    session: Session, template: GuardTemplate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roost.supervisor.forkserver.forked_guard._ANSWER_SECONDS", 0.1)
    template.open()
    assert template._process is not None
    template._process.send_signal(signal.SIGSTOP)
    coming = fork(session, template, "end('succeeded', 0)")
    coming.wait_until_recorded()
    assert not isinstance(coming.guard, ForkedGuard) and coming.guard.wait(20) == 0


def test_a_guard_without_a_spec_runs_nothing(template: GuardTemplate) -> None:
    """The requesting process has ended before."""
    forked = template.fork([])
    assert forked is not None
    with forked.stderr, closing(forked):
        forked.stdin.close()
        forked.wait()
        assert b"JSONDecodeError" in forked.stderr.read()


def test_it_ends_with_who_has_started_it() -> None:
    code = (
        "import signal; from roost.supervisor.forkserver.forked_guard import GuardTemplate\n"
        "template = GuardTemplate(); template.open()\n"
        "print(template._process.pid, flush=True); signal.pause()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        ticks, boot = process_identity.start_ticks(pid), process_identity.boot_id()
        expected = b"".join(os.fsencode(part) + b"\0" for part in GUARD_COMMAND)
        try:  # the kernel fills this in a moment after the program was begun
            wait_for(lambda: Path(f"/proc/{pid}/cmdline").read_bytes() == expected)
        finally:
            owner.kill()
    wait_for(lambda: not process_identity.is_alive(pid, ticks, boot))
