from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

import roost
from roost.base.errors import RoostError
from roost.base.system import process_identity
from roost.supervisor import guard_start as start_module
from roost.supervisor.guard_start import StartInterrupted
from roost.supervisor.session_spec import SessionSpec
from tests.messages import Messages
from tests.supervisor.real_sessions import Session
from tests.waiting import wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")

# A test run in the background of a shell ignores SIGINT, and so would what it starts.
OPERATION = f"""
import os, signal, sys
sys.path.insert(0, {str(Path(roost.__file__).parents[1])!r})
signal.signal(signal.SIGINT, signal.default_int_handler)
from roost.supervisor import guard_start as module
from roost.supervisor.session_spec import SessionSpec
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGHUP, signal.SIGINT])
def test_the_run_outlives_its_operation(session: Session, how: signal.Signals) -> None:
    os.mkfifo(session.folder / "go")
    spec = session.spec("here('ready'); open('go').read(); end('succeeded', 0)")
    operation = (
        OPERATION + "child = module.start_session(SessionSpec.from_json(sys.stdin.read()), lock_fd=None)\n"
        "print(child.supervisor_pid, flush=True)\n"
        "signal.pause()"
    )
    command = [sys.executable, "-I", "-S", "-c", operation]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as cli:
        assert cli.stdin is not None
        assert cli.stdout is not None
        try:
            with cli.stdin:
                cli.stdin.write(spec.to_json().encode())
            supervisor_pid = int(cli.stdout.readline())
            session.wait_until("ready")
        finally:
            os.killpg(cli.pid, how)
    record = session.record()
    assert record["pid"] == supervisor_pid
    assert process_identity.is_alive(record["pid"], record["start_ticks"], record["boot_id"])
    (session.folder / "go").write_text("")
    wait_for(lambda: session.record()["state"] == "succeeded")
    wait_for(lambda: not process_identity.is_alive(record["pid"], record["start_ticks"], record["boot_id"]))


@pytest.mark.parametrize("field", ["output", "session_file"])
def test_a_start_that_fails_says_why_and_leaves_nothing(
    session: Session, field: str, messages: Messages
) -> None:
    nowhere = str(session.folder / "no" / "where")
    spec = session.spec("here('ready'); forever()")
    spec = spec._replace(output=nowhere) if field == "output" else spec._replace(session_file=nowhere)
    with pytest.raises(RoostError, match=r"session 1 .*No such file or directory") as refused:
        session.start_spec(spec)
    messages.check(re.sub(r"\.tmp-\w+", "", str(refused.value)))
    assert not session.locked()
    assert session.living() == []


def test_a_start_that_takes_too_long_is_ended(session: Session, messages: Messages) -> None:
    with pytest.raises(RoostError, match="0 s") as refused:
        session.start_spec(session.spec("forever()"), timeout_seconds=0.0)
    messages.check(refused.value)
    assert not session.locked()


def test_a_start_that_is_killed(
    session: Session, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    hand_over = start_module._send_spec

    def kill(spec: SessionSpec, child: subprocess.Popen[bytes]) -> None:
        child.kill()
        hand_over(spec, child)

    monkeypatch.setattr(start_module, "_send_spec", kill)
    with pytest.raises(StartInterrupted, match="session 1 ") as refused:
        session.start("forever()")
    messages.check(refused.value)
    assert not session.locked()


def test_the_caller_s_end_of_the_pipes_is_closed(session: Session) -> None:
    num_before = len(list(Path("/proc/self/fd").iterdir()))
    session.start("end('succeeded', 0)").wait(100)
    assert len(list(Path("/proc/self/fd").iterdir())) == num_before


def test_an_interrupted_start_leaves_nothing(session: Session) -> None:
    """Ctrl-C while it waits for the supervisor: here for one that cannot come up, since it is paused."""
    interrupt = (
        OPERATION + "hand_over = module._send_spec\n"
        "def pause(spec, child):\n"
        "    os.kill(child.pid, signal.SIGSTOP); hand_over(spec, child); print(child.pid, flush=True)\n"
        "module._send_spec = pause\n"
        "module.start_session(SessionSpec.from_json(sys.stdin.read()), lock_fd=None)"
    )
    command = [sys.executable, "-I", "-S", "-c", interrupt]
    spec = session.spec("forever()")
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as cli:
        assert cli.stdin is not None
        assert cli.stdout is not None
        with cli.stdin:
            cli.stdin.write(spec.to_json().encode())
        pid = int(cli.stdout.readline())
        ticks, boot = process_identity.start_ticks(pid), process_identity.boot_id()
        cli.send_signal(signal.SIGINT)
    assert cli.returncode == -signal.SIGINT
    with suppress(ProcessLookupError):  # the kernel may deliver SIGTERM before the pause
        os.kill(pid, signal.SIGCONT)
    wait_for(lambda: not process_identity.is_alive(pid, ticks, boot))
    assert session.living() == []
