"""The real supervisor with real, small workers; every worker tells by a file or its output how far it is."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

import pytest

from roost.base import process
from roost.lab.supervisor import Ending, Spec, ending
from tests.lab.sessions import Session
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
    assert running["pid"] == child.pid
    assert process.alive(running["pid"], running["start_ticks"], running["boot_id"])
    assert session.locked()
    (session.folder / "go").write_text("")
    assert child.wait(20) == 0
    ended = session.record()
    assert outcome(ended) == ("succeeded", 0, 0)
    assert ended["error"] is None
    assert ended["reason"] == "max_steps"
    assert ended["peak_memory_mb"] > 1
    assert ended["started"] <= ended["ended"]
    assert ended["seconds"] >= 0
    assert running.items() <= {**ended, "state": "running"}.items()
    assert set(running) == {
        "format", "session", "state", "host", "boot_id", "pid", "start_ticks", "worker_pid", "started"
    }  # fmt: skip
    assert not session.locked()


@pytest.mark.parametrize(
    ("code", "expected", "error"),
    [
        ("", ("crashed", 1, 0), "exited with 0 before the run had ended"),
        ("sys.exit(0)", ("crashed", 1, 0), "exited with 0 before the run had ended"),
        ("sys.exit(75)", ("crashed", 1, 75), "exited with 75 before the run had ended"),
        ("os._exit(3)", ("crashed", 3, 3), "exited with 3 before the run had ended"),
        ("raise ValueError('x')", ("crashed", 1, 1), "exited with 1 before the run had ended"),
        ("os.kill(os.getpid(), 9)", ("crashed", 1, "SIGKILL"), "killed by SIGKILL"),
        ("os.kill(os.getpid(), 15)", ("crashed", 1, "SIGTERM"), "killed by SIGTERM"),
        ("os.closerange(0, 64); os._exit(0)", ("crashed", 1, 0), "exited with 0 before the run had ended"),
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
    assert record["error"] == error


def test_a_program_that_is_not_there(session: Session) -> None:
    spec = session.spec("")._replace(argv=["/nowhere/python"])
    assert session.start_spec(spec).wait(20) == 1
    record = session.record()
    assert outcome(record) == ("failed", 1, 127)
    assert "No such file" in record["error"]


def test_bytes_stay_as_they_are(session: Session) -> None:
    session.output.write_bytes(b"first session\n")
    code = "for i in range(300): os.write(1 + i % 2, bytes(range(256)))\nend('succeeded', 0)"
    session.end(code)
    assert session.output.read_bytes() == b"first session\n" + bytes(range(256)) * 300


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
    env.pop("LC_CTYPE", None)  # Python itself sets it in the C locale
    assert env == {"PATH": os.environ["PATH"], "NAME": "ä", "RAW": raw}
    assert cwd == str(session.folder)
    assert stdin == os.devnull
    assert leads_session
    assert not is_terminal
    blocked, ignored = (int(line.split()[1], 16) for line in masks)
    assert blocked == 0
    assert ignored >> (signal.SIGTERM - 1) & 1 == 0
    assert ignored >> (signal.SIGHUP - 1) & 1 == 1


def test_sigterm_asks_once_and_the_worker_answers(session: Session) -> None:
    code = """
def save(*_): end("stopped", 75, "signal"); sys.exit(75)
signal.signal(signal.SIGTERM, save)
here("ready"); forever()
"""
    child = session.start(code)
    session.wait_until("ready")
    child.send_signal(signal.SIGHUP)
    child.send_signal(signal.SIGINT)
    assert child.wait(20) == 75
    assert outcome(session.record()) == ("stopped", 75, 75)


def test_a_worker_that_cannot_answer_yet_is_stopped_not_crashed(session: Session) -> None:
    child = session.start("here('ready'); forever()")
    session.wait_until("ready")
    child.terminate()
    assert child.wait(20) == 75
    assert outcome(session.record()) == ("stopped", 75, "SIGTERM")


def test_a_paused_worker_can_be_stopped(session: Session) -> None:
    child = session.start("here('ready'); os.kill(os.getpid(), signal.SIGSTOP); forever()")
    session.wait_until("ready")
    worker_pid = session.record()["worker_pid"]
    wait_for(lambda: (stat := process.read_stat(worker_pid)) is not None and stat.state == "T")
    child.terminate()
    assert child.wait(20) == 75


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
    assert child.wait(20) == 130
    record = session.record()
    assert outcome(record) == ("stopped", 130, "SIGKILL")
    assert record["reason"] == "killed"
    assert session.living() == []
    assert not session.locked()


def test_sigquit_kills_at_once(session: Session) -> None:
    child = session.start(DEAF)
    session.wait_until("ready")
    child.send_signal(signal.SIGQUIT)
    assert child.wait(20) == 130
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


def test_the_supervisor_killed(session: Session) -> None:
    """Its worker dies with it; what escaped the worker keeps the lock, because it may still write."""
    code = "daemon('quiet')\nif os.fork() == 0: here('child', os.getpid()); forever()\nforever()"
    child = session.start(code)
    escaped = int(session.wait_until("child"))
    session.wait_until("quiet")
    record = session.record()
    worker = record["worker_pid"], process.start_ticks(record["worker_pid"]), record["boot_id"]
    assert process.alive(*worker)
    child.kill()
    child.wait(10)
    wait_for(lambda: not process.alive(*worker))
    assert session.record()["state"] == "running"
    assert not process.alive(record["pid"], record["start_ticks"], record["boot_id"])
    assert session.locked()
    os.kill(escaped, signal.SIGKILL)
    os.kill(int((session.folder / "quiet").read_text()), signal.SIGKILL)
    wait_for(lambda: not session.locked())


def test_an_end_that_cannot_be_recorded_is_told_in_the_output(session: Session) -> None:
    os.mkfifo(session.folder / "go")
    child = session.start("open('go').read(); print('last words'); end('stopped', 75)")
    session.file.parent.rename(session.folder / "elsewhere")
    (session.folder / "go").write_text("")
    assert child.wait(20) == 75
    output = session.output.read_text()
    assert output.startswith("last words\n")
    assert "roost: the end of this session (stopped, test) could not be recorded" in output


def test_the_spec_round_trips() -> None:
    spec = Spec(["a"], "/", {"B": os.fsdecode(b"\xff")}, "/p", 3, "/o", "/s", lock_fd=4)
    assert Spec.from_json(spec.to_json()) == spec
    with pytest.raises(TypeError):
        Spec.from_json('{"argv": [], "surprise": 1}')


@pytest.mark.parametrize(
    "report",
    [b"", b"\n", b"{", b"[]", b"null", b"\xff\xfe", b'{"state": "succeeded"}', b"[" * 100_000,
     b'{"state": "done", "exit_code": 0, "reason": "", "error": null}',
     b'{"state": "failed", "exit_code": "0", "reason": "", "error": null}'],
)  # fmt: skip
def test_a_line_that_means_nothing_is_no_line(report: bytes) -> None:
    assert ending(report, 0, asked_to_stop=False, killed=False).state == "crashed"


def test_the_last_line_that_means_something_counts() -> None:
    lines = [
        {"state": state, "exit_code": 0, "reason": "r", "error": None} for state in ("failed", "succeeded")
    ]
    report = b"\n".join(json.dumps(line).encode() for line in lines) + b'\n{"half": '
    assert ending(report, 0, asked_to_stop=True, killed=True) == Ending("succeeded", 0, "r", None)
