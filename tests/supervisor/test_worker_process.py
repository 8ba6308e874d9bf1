from __future__ import annotations

import json
import os
import resource
import signal
import sys
from typing import Any

import pytest

from roost.supervisor.limits import SessionLimits
from tests.messages import Messages
from tests.supervisor.real_sessions import Session

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs a child subreaper and /proc")


def test_what_the_worker_finds(session: Session) -> None:
    code = """
stdin = os.readlink("/proc/self/fd/0")
mask = [line for line in open("/proc/self/status") if line.startswith(("SigBlk", "SigIgn"))]
print(json.dumps([dict(os.environ), os.getcwd(), stdin, os.getsid(0) == os.getpid(), os.isatty(1), mask]))
end("succeeded", 0)
"""
    raw = os.fsdecode(b"\xff")
    session.end(code, NAME="ä", RAW=raw)
    env, cwd, stdin, leads_session, is_terminal, masks = json.loads(session.output.read_text())
    assert env.pop("ROOST_REPORT_FD").isdigit()
    assert env.pop("ROOST_STACKS_FD").isdigit()
    assert len(env.pop("ROOST_TOKEN")) == 32
    env.pop("LC_CTYPE", None)  # Python itself sets it in the C locale
    assert env == {"PATH": os.environ["PATH"], "NAME": "ä", "RAW": raw}
    assert cwd == str(session.folder)
    assert stdin == os.devnull
    assert leads_session
    assert not is_terminal
    blocked, ignored = (int(line.split()[1], 16) for line in masks)
    assert blocked == 0
    for default in (signal.SIGTERM, signal.SIGUSR2, signal.SIGALRM, signal.SIGTSTP):
        assert ignored >> (default - 1) & 1 == 0
    assert ignored >> (signal.SIGHUP - 1) & 1 == 1


def test_a_program_that_is_not_there(session: Session) -> None:
    spec = session.spec("")._replace(argv=["/nowhere/python"])
    assert session.start_spec(spec).wait(100) == 1
    record = session.record()
    assert (record["state"], record["exit_code"], record["worker_status"]) == ("failed", 1, 127)
    assert record["reason"] == "start"
    assert "No such file" in record["error"]
    assert record["error"] in session.output.read_text()


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"argv": ["nosuchprog", "x"]}, "nosuchprog: No such file or directory"),
        ({"argv": ["/etc/passwd"]}, "/etc/passwd: Permission denied"),
        ({"argv": ["true"], "cwd": "/nowhere"}, "/nowhere: No such file or directory"),
    ],
)
def test_a_command_that_cannot_be_started_says_why(
    session: Session, given: dict[str, Any], why: str, messages: Messages
) -> None:
    assert session.start_spec(session.spec("")._replace(is_command=True, **given)).wait(100) == 127
    record = session.record()
    assert record["error"].endswith(f": {why}")
    messages.check(record["error"])
    assert session.output.read_text() == f"\nroost: {record['error']}\n"


def test_the_error_of_a_failed_command_has_its_last_line(session: Session, messages: Messages) -> None:
    argv = ["/bin/sh", "-c", "echo boom; exit 3"]
    assert session.start_spec(session.spec("")._replace(is_command=True, argv=argv)).wait(100) == 3
    error = session.record()["error"]
    assert "3" in error and error.endswith(": boom")
    messages.check(error)


@pytest.mark.parametrize("core", [0, 4096])
def test_core_files_are_limited(session: Session, core: int) -> None:
    code = "import resource; print(json.dumps(resource.getrlimit(resource.RLIMIT_CORE))); end('succeeded', 0)"
    session.end_spec(session.spec(code)._replace(limits=SessionLimits(core_bytes=core)))
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    assert json.loads(session.output.read_text()) == [core if hard < 0 else min(core, hard), hard]


def test_a_worker_at_a_terminal(session: Session) -> None:
    """Not its controlling terminal: Ctrl-C is for the program that started it."""
    ours, theirs = os.openpty()
    code = """
said = input("name? ")
try: os.open("/dev/tty", os.O_RDWR)
except OSError as error: print("hello", said, error.errno, all(map(os.isatty, range(3))))
end("succeeded", 0)
"""
    session.start_spec(session.spec(code)._replace(terminal=os.ttyname(theirs)))
    os.write(ours, b"you\n")
    assert session.child is not None
    assert session.child.wait(100) == 0
    shown = os.read(ours, 4096)
    os.close(ours)
    os.close(theirs)
    assert b"hello you 6 True" in shown
    assert session.output.read_bytes() == b""


def test_a_terminal_that_is_not_there(session: Session) -> None:
    record = session.end_spec(session.spec("")._replace(terminal="/nowhere/tty"))
    assert record["reason"] == "start"
    assert "/nowhere/tty" in record["error"]


@pytest.mark.needs_cgroup
@pytest.mark.parametrize("wanted", [True, False])
def test_the_worker_s_cgroup(session: Session, wanted: bool) -> None:
    spec = session.spec("print(open('/proc/self/cgroup').read()); end('succeeded', 0)")
    record = session.end_spec(spec._replace(cgroup=wanted))
    is_in = f"roost-{session.token}" in session.output.read_text()
    assert is_in == wanted == (record["cgroup"] is not None)
    assert record["scope"] == ("cgroup" if is_in else "walk")


def test_a_command_is_looked_for_as_a_shell_does(session: Session) -> None:
    """What is in its own folder counts where the PATH names that; folders and files that cannot be started
    are passed over."""
    folders = [session.folder / name for name in ("first", "second", "own")]
    for folder in folders:
        folder.mkdir()
    (folders[0] / "program").mkdir()
    (folders[1] / "program").write_text("no program")
    for folder, mode in ((folders[2], 0o755), (session.folder, 0o755)):
        (folder / "program").write_text(f"#!/bin/sh\necho {folder.name}")
        (folder / "program").chmod(mode)
    for path, expected in ((folders, "own"), (["", *folders], session.folder.name), (["own"], "own")):
        spec = session.spec("", PATH=":".join(map(str, path)))
        spec = spec._replace(is_command=True, argv=["program"], cwd=str(session.folder))
        session.end_spec(spec)
        assert session.output.read_text().splitlines()[-1] == expected
