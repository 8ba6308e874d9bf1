"""The real supervisor with real, small workers; every worker shows by a file or its output how far it is."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import pytest

from roost.base.system import process_identity
from roost.package.live_progress import ProgressFile
from tests.supervisor.real_sessions import Session
from tests.waiting import wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs a child subreaper and /proc")


def outcome(record: dict[str, Any]) -> tuple[str, int, int | str]:
    return record["state"], record["exit_code"], record["worker_status"]


def test_success_is_said_by_the_worker(session: Session) -> None:
    os.mkfifo(session.folder / "go")
    child = session.start("here('ready'); open('go').read(); end('succeeded', 0, 'max_steps')")
    session.wait_until("ready")
    running = session.record()
    assert running["state"] == "running"
    assert running["pid"] == session.supervisor_pid
    assert running["guard_pid"] == child.pid
    assert process_identity.is_alive(running["pid"], running["start_ticks"], running["boot_id"])
    assert session.locked()
    (session.folder / "go").write_text("")
    assert child.wait(100) == 0
    ended = session.record()
    assert outcome(ended) == ("succeeded", 0, 0)
    assert ended["error"] is None
    assert ended["reason"] == "max_steps"
    assert ended["peak_memory_mb"] > 1
    assert ended["started"] <= ended["ended"]
    assert ended["seconds"] >= 0
    assert running.items() <= {**ended, "state": "running"}.items()
    assert set(running) == {
        "format", "session", "state", "host", "boot_id", "pid", "start_ticks", "guard_pid",
        "guard_start_ticks", "worker_pid", "cgroup", "started"
    }  # fmt: skip
    assert not session.locked()


@pytest.mark.parametrize(
    ("code", "expected", "error"),
    [
        ("", ("crashed", 1, 0), "0"),
        ("sys.exit(0)", ("crashed", 1, 0), "0"),
        ("sys.exit(75)", ("crashed", 1, 75), "75"),
        ("os._exit(3)", ("crashed", 3, 3), "3"),
        ("raise ValueError('x')", ("crashed", 1, 1), "1"),
        ("os.kill(os.getpid(), 9)", ("crashed", 1, "SIGKILL"), "SIGKILL"),
        ("os.kill(os.getpid(), 15)", ("crashed", 1, "SIGTERM"), "SIGTERM"),
        ("os.closerange(0, 64); os._exit(0)", ("crashed", 1, 0), "0"),
        ("end('failed', 1, 'exception', 'ValueError: x'); sys.exit(1)", ("failed", 1, 1), "ValueError: x"),
        ("end('failed', 4, 'config', 'no'); sys.exit(4)", ("failed", 4, 4), "no"),
        ("end('stopped', 75); sys.exit(75)", ("stopped", 75, 75), None),
        ("end('succeeded', 0); os.abort()", ("succeeded", 0, "SIGABRT"), None),
        ("end('failed', 1, error='x' * 300_000); os._exit(1)", ("failed", 1, 1), "x" * 300_000),
    ],
)
def test_every_way_to_end(session: Session, code: str, expected: object, error: str | None) -> None:
    record = session.end(code)
    assert outcome(record) == expected
    if error is None or code.startswith("end("):
        assert record["error"] == error
    else:
        assert error in record["error"]


@pytest.mark.parametrize("is_command", [False, True])
def test_a_killed_worker_is_named_where_its_output_ends(session: Session, is_command: bool) -> None:
    progress = session.folder / "progress"
    ProgressFile(progress).publish(813, 1, 0, 1, 900, 100, 0, 1.0, 1.0, 0.5)
    code = "print('the last line', flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    spec = session.spec(code)._replace(progress=str(progress), is_command=is_command)
    record = session.end_spec(spec)
    *_, line = session.output.read_text().splitlines()
    who = "the command" if is_command else f"worker {record['worker_pid']}"
    assert line == f"roost: {who} crashed near step 813: {record['error']}"
    assert "SIGKILL" in line


def test_bytes_stay_as_they_are(session: Session) -> None:
    session.output.write_bytes(b"first session\n")
    code = "for i in range(300): os.write(1 + i % 2, bytes(range(256)))\nend('succeeded', 0)"
    session.end(code)
    assert session.output.read_bytes() == b"first session\n" + bytes(range(256)) * 300


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize("asking", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_asking_once_and_the_worker_answers(session: Session, asking: signal.Signals, direct: bool) -> None:
    code = """
def save(*_): end("stopped", 75, "signal"); sys.exit(75)
signal.signal(signal.SIGTERM, save)
here("ready"); forever()
"""
    child = session.start(code)
    session.wait_until("ready")
    for harmless in (signal.SIGHUP, signal.SIGUSR2, signal.SIGALRM, signal.SIGTSTP):
        child.send_signal(harmless)
        os.kill(session.supervisor_pid, harmless)
    os.kill(session.supervisor_pid if direct else child.pid, asking)
    assert child.wait(100) == 75
    assert outcome(session.record()) == ("stopped", 75, 75)


def test_a_worker_that_cannot_answer_yet_is_stopped_not_crashed(session: Session) -> None:
    child = session.start("here('ready'); forever()")
    session.wait_until("ready")
    child.terminate()
    assert child.wait(100) == 75
    assert outcome(session.record()) == ("stopped", 75, "SIGTERM")


def test_a_paused_worker_can_be_stopped(session: Session) -> None:
    child = session.start("here('ready'); os.kill(os.getpid(), signal.SIGSTOP); forever()")
    session.wait_until("ready")
    worker_pid = session.record()["worker_pid"]
    wait_for(lambda: (stat := process_identity.read_stat(worker_pid)) is not None and stat.state == "T")
    child.terminate()
    assert child.wait(100) == 75


DEAF = """
signal.signal(signal.SIGTERM, lambda *_: here("asked"))
daemons(2); here("ready"); forever()
"""


def test_asking_again_changes_nothing_and_sigquit_kills(session: Session) -> None:
    child = session.start(DEAF)
    session.wait_until("ready")
    child.terminate()
    session.wait_until("asked")
    (session.folder / "asked").unlink()
    child.terminate()
    child.send_signal(signal.SIGINT)
    assert child.poll() is None
    child.send_signal(signal.SIGQUIT)
    assert child.wait(100) == 130
    record = session.record()
    assert outcome(record) == ("stopped", 130, "SIGKILL")
    assert record["reason"] == "killed"
    assert session.living() == []
    assert not session.locked()


def test_sigquit_kills_at_once(session: Session) -> None:
    child = session.start(DEAF)
    session.wait_until("ready")
    child.send_signal(signal.SIGQUIT)
    assert child.wait(100) == 130
    assert not (session.folder / "asked").exists()
    assert session.living() == []


@pytest.mark.parametrize("last", ["end('succeeded', 0)", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_nothing_survives_the_worker(session: Session, last: str) -> None:
    session.end(f"daemons(10); {last}")
    assert len(list(session.folder.glob("daemon*"))) == 10
    assert session.living() == []


def test_a_storm_of_forks_ends_with_the_worker(session: Session) -> None:
    """Children that fork on and on, each in its own session, while they are being killed."""
    code = """
if os.fork() == 0:
    for i in range(200):
        if os.fork() == 0:
            os.setsid()
            if i == 50: here("ready")
            if os.fork() == 0: forever()
            forever()
    forever()
while not os.path.exists("ready"): time.sleep(0.002)
os._exit(7)
"""
    record = session.end(code)
    assert outcome(record) == ("crashed", 7, 7)
    assert session.living() == []


def test_an_end_that_cannot_be_recorded_is_printed(session: Session) -> None:
    os.mkfifo(session.folder / "go")
    child = session.start("open('go').read(); print('last words'); end('stopped', 75)")
    session.file.parent.rename(session.folder / "elsewhere")
    (session.folder / "go").write_text("")
    assert child.wait(100) == 75
    output = session.output.read_text()
    assert output.startswith("last words\n")
    assert "roost: " in output and "(stopped, test)" in output
