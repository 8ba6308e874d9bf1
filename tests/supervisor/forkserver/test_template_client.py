"""Guards from a template: as those that are started, and nothing is lost with it."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import roost
from roost.base.errors import RoostError
from roost.base.system import process_identity
from roost.supervisor import guard_start as starting
from roost.supervisor.forkserver import template_client
from roost.supervisor.forkserver.template_client import ForkedGuard
from roost.supervisor.forkserver.template_pool import TemplatePool
from tests.supervisor.real_sessions import Session
from tests.waiting import wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")

SRC = str(Path(roost.__file__).parents[1])
FOREVER = "here('ready'); forever()"


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TemplatePool]:
    """A pool whose template for guards listens."""
    monkeypatch.setenv(template_client.FOLDER_VARIABLE, str(tmp_path / "warm"))
    with closing(TemplatePool()) as pool:
        pool.open()
        wait_for(pool.guard_template.exists)
        yield pool


def template_process(pool: TemplatePool) -> subprocess.Popen[bytes]:
    assert pool._guards is not None
    return pool._guards.process


def fork(session: Session, template: Path | None, code: str = FOREVER) -> starting.StartingSession:
    """A session whose guard holds its lock; its supervisor has come up, or has said why not."""
    lock_fd = os.open(session.folder / "lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(lock_fd, fcntl.LOCK_EX)
        return starting.spawn_guard(session.spec(code), lock_fd=lock_fd, guard_template=template)
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
        "argv": (proc / "cmdline").read_bytes().rstrip(b"\0"),
        "name": status["Name"],
        "environment": re.sub(
            rb"(ROOST_\w+_FD|PYTEST_CURRENT_TEST)=[^\0]+", rb"\1", (proc / "environ").read_bytes()
        ),
        "cwd": (proc / "cwd").readlink(),
        "limits": (proc / "limits").read_text(),
        "oom": (proc / "oom_score_adj").read_text(),
        "nice": fields[16],
        "leads its session": int(fields[3]) == pid,
        "leads its group": int(fields[2]) == pid,
        "fds": sorted(kind for fd in (proc / "fd").iterdir() if (kind := kind_of(fd)) != _LATE),
        **{
            name: status[name]
            for name in ("Umask", "SigBlk", "SigIgn", "SigCgt", "Threads", "Groups", "CapEff")
        },
    }


_LATE = "anon_inode:inotify"
"""The supervisor opens it at its second look at the output."""


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


def test_it_is_as_one_that_was_started(session: Session, pool: TemplatePool) -> None:
    started = fork(session, None)
    started.wait_until_recorded()
    found = people(session)
    end(session)
    assert not isinstance(started.guard, ForkedGuard)
    started.guard.wait()
    for name in ("ready", "sessions/1.json"):
        (session.folder / name).unlink()
    forked = fork(session, pool.guard_template)
    forked.wait_until_recorded()
    assert isinstance(forked.guard, ForkedGuard)
    assert people(session) == found
    for role in ("guard", "supervisor"):
        title = f"roost: {role} {session.folder.name}"
        assert found[role]["argv"].decode() == title and found[role]["name"].strip() == title[:15]
    assert end(session)["state"] == "stopped"


@pytest.mark.parametrize(("end", "code"), [("end('succeeded', 0)", 0), ("end('failed', 5)", 5)])
def test_it_ends_as_its_session_does_and_leaves_no_descriptor(
    session: Session, pool: TemplatePool, end: str, code: int
) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    coming = fork(session, pool.guard_template, end)
    assert isinstance(coming.guard, ForkedGuard)
    coming.wait_until_recorded()
    assert coming.guard.wait() == code and coming.guard.poll() == code
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    wait_for(lambda: not session.locked())
    assert session.record()["exit_code"] == code


def test_a_start_that_fails_says_why_and_leaves_nothing(session: Session, pool: TemplatePool) -> None:
    spec = session.spec(FOREVER)._replace(output=str(session.folder / "no" / "where"))
    coming = starting.spawn_guard(spec, lock_fd=None, guard_template=pool.guard_template)
    with pytest.raises(RoostError, match=r"session 1 .*No such file or directory"):
        coming.wait_until_recorded()
    assert isinstance(coming.guard, ForkedGuard) and session.living() == []


def test_one_that_comes_up_too_late_is_ended(session: Session, pool: TemplatePool) -> None:
    spec = session.spec(FOREVER)
    coming = starting.spawn_guard(spec, lock_fd=None, guard_template=pool.guard_template, timeout_seconds=0.0)
    with pytest.raises(RoostError, match="0 s"):
        coming.wait_until_recorded()
    wait_for(lambda: session.living() == [])


def test_its_guards_continue_without_it(session: Session, pool: TemplatePool) -> None:
    fork(session, pool.guard_template).wait_until_recorded()
    session.wait_until("ready")
    pool.close()
    assert session.locked() and "guard_lost" not in end(session)


def test_one_that_does_not_answer_is_not_waited_for(
    session: Session, pool: TemplatePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(template_client, "_ANSWER_SECONDS", 0.1)
    template_process(pool).send_signal(signal.SIGSTOP)
    coming = fork(session, pool.guard_template, "end('succeeded', 0)")
    coming.wait_until_recorded()
    assert not isinstance(coming.guard, ForkedGuard) and coming.guard.wait(100) == 0
    template_process(pool).send_signal(signal.SIGCONT)
    wait_for(lambda: not session.locked())  # the guard that it forks now has received no spec
    assert not pool.guard_template.exists(), "no other process waits for it"


def test_a_guard_without_a_spec_runs_nothing(session: Session, pool: TemplatePool) -> None:
    """The requesting process has ended before."""
    forked = template_client.fork_guard(session.spec(FOREVER), [], pool.guard_template)
    assert forked is not None
    with forked.stderr, closing(forked):
        forked.stdin.close()
        assert forked.wait() == 1
        assert b"JSONDecodeError" in forked.stderr.read()


# --- a template that is killed in the middle of a start -----------------------------------------------------

ONCE = "here(f'ran{os.getpid()}'); end('succeeded', 0)"
DIES_AFTER_THE_FORK = """
import os, signal, sys
from roost.supervisor.forkserver import template_process
template_process._send = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
template_process.load_modules()
template_process.serve(sys.argv[1], template_process.Preload())
"""


def ran_once(session: Session, coming: starting.StartingSession) -> bool:
    """Whether the session has run once, and no guard is left that could run it again."""
    coming.wait_until_recorded()
    coming.guard.wait(timeout=100)
    wait_for(lambda: not session.locked() and session.living() == [])
    return session.record()["state"] == "succeeded" and len(list(session.folder.glob("ran*"))) == 1


def test_one_that_was_killed_before_is_done_without(session: Session, pool: TemplatePool) -> None:
    killed = template_process(pool)
    killed.kill()
    killed.wait()
    coming = fork(session, pool.guard_template, ONCE)
    assert not isinstance(coming.guard, ForkedGuard) and ran_once(session, coming)
    pool.open()
    assert template_process(pool) is not killed
    wait_for(lambda: template_client.is_listening(pool.guard_template))


def test_one_that_is_killed_before_it_forks(
    session: Session, pool: TemplatePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = socket.send_fds
    template_process(pool).send_signal(signal.SIGSTOP)

    def send_and_kill(*arguments: Any) -> int:
        sent = send(*arguments)
        template_process(pool).kill()
        return sent

    monkeypatch.setattr(socket, "send_fds", send_and_kill)
    coming = fork(session, pool.guard_template, ONCE)
    assert not isinstance(coming.guard, ForkedGuard) and ran_once(session, coming)


def test_one_that_is_killed_after_it_has_forked(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "warm" / "template"
    path.parent.mkdir(mode=0o700)
    own_end, child_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with own_end, child_end:
        command = [sys.executable, "-c", DIES_AFTER_THE_FORK, str(path)]
        with subprocess.Popen(command, stdin=child_end, env=os.environ | {"PYTHONPATH": SRC}) as process:
            wait_for(path.exists)
            coming = fork(session, path, ONCE)
            assert not isinstance(coming.guard, ForkedGuard) and ran_once(session, coming)
    assert process.returncode == -signal.SIGKILL


def test_one_that_is_killed_after_it_has_answered(
    session: Session, pool: TemplatePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_answer = template_client._read_answer

    def read_and_kill(*arguments: Any) -> tuple[int, int]:
        found = read_answer(*arguments)
        template_process(pool).kill()
        return found

    monkeypatch.setattr(template_client, "_read_answer", read_and_kill)
    coming = fork(session, pool.guard_template, ONCE)
    assert isinstance(coming.guard, ForkedGuard) and ran_once(session, coming)
    assert coming.guard.returncode == 1, "the template, which knows the exit code, is gone"
