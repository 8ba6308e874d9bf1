"""What happens to a session whose supervisor or guard is killed."""

from __future__ import annotations

import os
import resource
import signal
import sys
from pathlib import Path

import pytest

from roost.base.system import process_identity
from roost.supervisor.limits import SessionLimits
from tests.messages import Messages
from tests.supervisor.real_sessions import Session
from tests.waiting import wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs a child subreaper and /proc")


def test_the_supervisor_killed(session: Session, messages: Messages) -> None:
    fork = "if os.fork() == 0: here('child'); forever()"
    code = f"os.write(1, b'before\\n'); daemons(3)\n{fork}\nhere('ready'); forever()"
    child = session.start(code)
    session.wait_until("ready")
    session.wait_until("child")
    running = session.record()
    os.kill(session.supervisor_pid, signal.SIGKILL)
    assert child.wait(100) == 1
    assert session.living() == []
    assert not session.locked()
    ended = session.record()
    assert (ended["state"], ended["exit_code"], ended["reason"]) == ("crashed", 1, "supervisor")
    assert "SIGKILL" in ended["error"]
    messages.check(ended["error"])
    assert ended["started"] <= ended["ended"]
    assert running.items() <= {**ended, "state": "running"}.items()
    assert session.output.read_text() == f"before\n\nroost: {ended['error']}\n"


def test_a_supervisor_with_a_defect(session: Session, messages: Messages) -> None:
    """The supervisor can open no file when it cleans up; the guard does it, and prints the reason."""
    child = session.start("daemons(3); here('ready')\nwhile not os.path.exists('go'): time.sleep(0.002)")
    session.wait_until("ready")
    resource.prlimit(session.supervisor_pid, resource.RLIMIT_NOFILE, (0, 0))
    (session.folder / "go").touch()
    assert child.wait(100) == 1
    messages.check(session.record()["error"])
    assert "Traceback" in session.output.read_text()
    assert session.living() == []
    assert not session.locked()


def test_the_output_of_a_killed_supervisor_is_shortened_too(session: Session) -> None:
    limits = SessionLimits(output_bytes=2**20)
    code = "os.write(1, b'0123456789abcde\\n' * 2**17); here('ready'); forever()"
    child = session.start_spec(session.spec(code)._replace(limits=limits))
    session.wait_until("ready")
    os.kill(session.supervisor_pid, signal.SIGKILL)
    assert child.wait(100) == 1
    assert session.record()["output_left_out_bytes"] > 2**20
    assert session.output.stat().st_size <= 2**20 + 200


def test_an_output_that_cannot_be_opened_does_not_cost_the_record(session: Session) -> None:
    """Here a FIFO is in its place, without a reader."""
    child = session.start("here('ready'); forever()")
    session.wait_until("ready")
    session.output.unlink()
    os.mkfifo(session.output)
    os.kill(session.supervisor_pid, signal.SIGKILL)
    assert child.wait(100) == 1
    ended = session.record()
    assert ended["state"] == "crashed" and "SIGKILL" in ended["error"]
    assert session.living() == []


def test_the_guard_killed(session: Session) -> None:
    """The run continues, prints that, keeps the lock, and ends as it would have."""
    os.mkfifo(session.folder / "go")
    child = session.start("here('ready'); open('go').read(); end('succeeded', 0)")
    session.wait_until("ready")
    child.kill()
    child.wait(100)
    wait_for(lambda: "guard_lost" in session.record())
    assert session.locked()
    assert process_identity.is_alive(
        session.supervisor_pid, session.record()["start_ticks"], process_identity.boot_id()
    )
    (session.folder / "go").write_text("")
    wait_for(lambda: session.record()["state"] == "succeeded")
    wait_for(lambda: not session.locked())
    assert "guard" in session.output.read_text()


def test_a_paused_supervisor_does_not_confuse_the_guard(session: Session) -> None:
    child = session.start("here('ready'); forever()")
    session.wait_until("ready")
    os.kill(session.supervisor_pid, signal.SIGSTOP)
    wait_for(
        lambda: (stat := process_identity.read_stat(session.supervisor_pid)) is not None and stat.state == "T"
    )
    assert child.poll() is None
    os.kill(session.supervisor_pid, signal.SIGCONT)
    child.send_signal(signal.SIGQUIT)
    assert child.wait(100) == 130


def test_it_holds_the_lock_and_nothing_of_the_start(session: Session) -> None:
    child = session.start("here('ready'); forever()")
    session.wait_until("ready")
    held = [os.readlink(fd) for fd in Path(f"/proc/{child.pid}/fd").iterdir()]  # noqa: PTH115
    pipes = [name for name in held if name.startswith("pipe:")]
    assert str(session.folder / "lock") in held
    assert len(pipes) == 2, "its stdin and stderr, whose other ends are closed"
    child.send_signal(signal.SIGQUIT)
    assert child.wait(100) == 130


def test_a_seal_that_cannot_be_written_is_a_line_of_the_output(session: Session) -> None:
    seal = session.folder / "sessions" / "1.seal.json"
    (seal / "in the way").mkdir(parents=True)
    session.end_spec(session.spec("end('succeeded', 0)")._replace(seal=str(seal)))
    assert "no digests of this session could be written for `roost verify`" in session.output.read_text()
