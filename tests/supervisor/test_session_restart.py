"""Sessions that the guard starts automatically after one that failed."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from roost.base.system import process_identity
from roost.supervisor import session_restart
from roost.supervisor.limits import SessionLimits
from roost.supervisor.session_restart import pause_seconds, planned_session, with_remaining_time
from tests.messages import Messages
from tests.supervisor.real_sessions import Session
from tests.waiting import wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs a child subreaper and /proc")

SRC = str(Path(session_restart.__file__).parents[2])
NUMBER = "number = int(sys.argv[1])\nprint('session', number, os.environ['ROOST_TOKEN'], flush=True)\n"
FAILS = "end('failed', 1, 'exception', 'ValueError: x'); sys.exit(1)"
REQUEST = {"kind": "train", "overrides": ["a=1"], "checkpoint": 4, "device": "cpu"}


def start(session: Session, code: str, *, restart: int = 2, restarted: int = 0, **limits: Any) -> None:
    (session.folder / "sessions" / "1.request.json").write_text(json.dumps({**REQUEST, "session": 1}))
    spec = session.spec(NUMBER + code)
    argv = [*spec.argv, "1"]
    spec = spec._replace(argv=argv, restart=restart, restarted=restarted, limits=SessionLimits(**limits))
    session.start_spec(spec)


def exit_code(session: Session) -> int:
    assert session.child is not None
    return session.child.wait(100)


def record(session: Session, number: int) -> dict[str, Any]:
    return dict(json.loads(session.file.with_name(f"{number}.json").read_bytes()))


def request(session: Session, number: int) -> dict[str, Any]:
    return dict(json.loads(session.file.with_name(f"{number}.request.json").read_bytes()))


def test_until_it_succeeds(session: Session) -> None:
    start(session, f"if number == 2: end('succeeded', 0); sys.exit(0)\n{FAILS}")
    assert exit_code(session) == 0
    first, second = record(session, 1), record(session, 2)
    assert (first["state"], first["restarted_as"], second["state"]) == ("failed", 2, "succeeded")
    assert first["ended"] <= second["started"]
    asked = request(session, 2)
    assert (asked["session"], asked["restart_of"], asked["device"]) == (2, 1, "cpu")
    assert (asked["overrides"], asked["checkpoint"]) == (["a=1"], 4), (
        "nothing was begun, so nothing holds yet"
    )
    assert asked["token"] != session.token
    text = session.output.read_text()
    assert f"session 2 {asked['token']}" in text
    (said,) = (line for line in text.splitlines() if line.startswith("roost: session 1 failed"))
    assert all(fact in said for fact in ("session 2", "1 s", "1 of 2"))
    assert asked["output_offsets"] == {"_output.txt": text.index(f"\n{said}")}
    assert not session.locked()


def test_what_was_asked_of_a_session_that_had_begun_is_not_asked_again(session: Session) -> None:
    (session.folder / "records").mkdir()
    (session.folder / "records" / "1.jsonl").touch()
    start(session, "os._exit(3)", restart=1)
    assert exit_code(session) == 3
    (said,) = (
        line for line in session.output.read_text().splitlines() if line.startswith("roost: session 1 ")
    )
    assert all(fact in said for fact in ("crashed", "session 2", "1 s", "1 of 1"))
    assert (request(session, 2)["overrides"], request(session, 2)["checkpoint"]) == ([], None)
    last = record(session, 2)
    assert (last["state"], "restarted_as" in last) == ("crashed", False)
    assert not session.file.with_name("3.request.json").exists(), "once was asked for"


@pytest.mark.parametrize(
    "code",
    [
        "end('failed', 4, 'error', 'a setting is wrong'); sys.exit(4)",
        "end('failed', 3, 'exit', 'sys.exit(3)'); sys.exit(3)",
        "end('stopped', 75, 'signal'); sys.exit(75)",
        "end('succeeded', 0)",
    ],
)
def test_what_would_end_in_the_same_way_is_not_begun_again(session: Session, code: str) -> None:
    start(session, code)
    exit_code(session)
    assert not session.file.with_name("2.request.json").exists()


def test_who_was_asked_to_stop_is_not_begun_again(session: Session) -> None:
    start(session, "signal.signal(signal.SIGTERM, lambda *_: os._exit(9)); here('ready'); forever()")
    session.wait_until("ready")
    os.kill(session.supervisor_pid, signal.SIGTERM)
    assert exit_code(session) == 9
    assert not session.file.with_name("2.request.json").exists()


def test_a_stop_after_the_workers_have_ended_counts_too(session: Session) -> None:
    """While their output, here 64 MB, is shortened."""
    code = "here('ready'); os.write(1, b'0123456789abcde\\n' * 2**22); os._exit(3)"
    start(session, code, restart=1, output_bytes=63 * 2**20)
    session.wait_until("ready")
    worker, supervisor = record(session, 1)["worker_pid"], session.supervisor_pid
    wait_for(lambda: process_identity.read_stat(worker) is None)
    os.kill(supervisor, signal.SIGTERM)
    assert exit_code(session) == 3
    assert not session.file.with_name("2.request.json").exists()
    assert record(session, 1)["stop_asked"]


def test_one_that_gets_no_further_is_not_restarted_though_restarts_are_left(
    session: Session, messages: Messages
) -> None:
    """A training that fails at step 40 each time."""
    code = f"""
sys.path.insert(0, {SRC!r})
from pathlib import Path
from roost.package.live_progress import ProgressFile
ProgressFile(Path(os.getcwd()) / 'progress').publish(40, 0, 0, 1, 100, 50, 0, 0.0, 0.0, 0.4)
"""
    start(session, code + FAILS, restart=100)
    assert exit_code(session) == 1
    assert [record(session, number)["step"] for number in (1, 2, 3)] == [40, 40, 40]
    assert "restarted_as" not in record(session, 3)
    assert not session.file.with_name("4.request.json").exists()
    (said,) = (line for line in session.output.read_text().splitlines() if "though 98 restarts" in line)
    messages.check(said)


def test_one_that_cannot_start_says_so(session: Session) -> None:
    """The process that started the run is gone by then."""
    (session.folder / "sessions" / "1.request.json").write_text(json.dumps({**REQUEST, "session": 1}))
    spec = session.spec("os._exit(3)")
    session.start_spec(spec._replace(argv=[*spec.argv, "1"], restart=1, ranks=({}, {})))
    wait_for(session.file.with_name("2.json").exists)
    second = session.folder / "_output_1.txt"
    second.unlink()
    second.mkdir()
    assert exit_code(session) == 1
    end = record(session, 2)
    assert (end["state"], end["reason"]) == ("failed", "start")
    assert "session 2" in end["error"] and "IsADirectoryError" in end["error"]
    assert end["error"] in session.output.read_text()
    assert not session.locked()


def test_stopped_in_the_pause(session: Session) -> None:
    """The record names the guard instead of the next supervisor; no other process can take the lock."""
    start(session, "os._exit(3)", restart=6, restarted=5)  # a pause of half a minute
    second = session.file.with_name("2.json")
    wait_for(second.exists)
    waiting = record(session, 2)
    assert session.child is not None
    assert (waiting["state"], waiting["pid"], waiting["worker_pid"]) == ("running", session.child.pid, None)
    assert session.locked()
    os.kill(waiting["pid"], signal.SIGTERM)
    assert exit_code(session) == 75
    assert (record(session, 2)["state"], record(session, 2)["reason"]) == ("stopped", "signal")
    assert not session.locked()


def test_a_killed_supervisor_is_an_accident_too(session: Session) -> None:
    start(session, "if number == 2: end('succeeded', 0); sys.exit(0)\nhere('ready'); forever()")
    session.wait_until("ready")
    os.kill(session.supervisor_pid, signal.SIGKILL)
    assert exit_code(session) == 0
    assert (record(session, 1)["state"], record(session, 2)["state"]) == ("crashed", "succeeded")
    assert session.living() == []


def test_without_a_guard_nothing_is_planned(session: Session) -> None:
    start(session, "here('ready')\nwhile not os.path.exists('go'): time.sleep(0.002)\nos._exit(3)")
    session.wait_until("ready")
    assert session.child is not None
    session.child.kill()
    wait_for(lambda: "guard_lost" in record(session, 1))
    (session.folder / "go").touch()
    wait_for(lambda: record(session, 1)["state"] == "crashed")
    assert not session.file.with_name("2.request.json").exists()
    wait_for(lambda: not process_identity.is_alive(session.supervisor_pid, None, process_identity.boot_id()))


def test_the_session_that_follows(session: Session) -> None:
    spec = session.spec("")
    session.file.write_text(json.dumps({"restarted_as": 2}))
    session.file.with_name("2.request.json").write_text(json.dumps({"token": "f" * 32}))
    found = planned_session(spec)
    assert found is not None
    assert (found.session, found.restarted, found.token) == (2, 1, "f" * 32)


@pytest.mark.parametrize(("left", "most"), [(40.0, 40.0), (-5.0, 0.0)])
def test_the_time_limit_is_that_of_all_together(session: Session, left: float, most: float) -> None:
    """With the pauses between them."""
    spec = session.spec("", ROOST_DEADLINE=str(time.time() + left))
    found = with_remaining_time(spec._replace(limits=SessionLimits(wall_seconds=100.0))).limits.wall_seconds
    assert found is not None
    assert max(0.0, most - 20) <= found <= most
    assert with_remaining_time(spec).limits.wall_seconds is None


def test_the_pause_grows_to_half_a_minute(tmp_path: Path) -> None:
    spec = Session(tmp_path).spec("")
    assert [pause_seconds(spec._replace(restarted=n)) for n in range(7)] == [1, 2, 4, 8, 16, 30, 30]
