"""Sessions: who ran, whether that process still lives, and what was asked of it."""

from __future__ import annotations

import errno
import fcntl
import json
import math
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from roost.base import durable
from roost.base.system import mounts, process_identity
from roost.package import sessions
from roost.package.session_schema import SESSION_FORMAT, SessionRecord, SessionRequest
from roost.package.sessions import Session, UnsupervisedRecord
from tests.messages import Messages


def record(**more: Any) -> dict[str, Any]:
    return {"state": "running", **sessions.own_identity(), **more}


def session_of(
    number: int, request: dict[str, Any], record: dict[str, Any] | None, lock: Path | None = None
) -> Session:
    found = SessionRecord.from_json(record) if record is not None else None
    return Session(number, SessionRequest.from_json(request), found, lock)


def ended_pid() -> int:
    """The id of a process that is gone."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def test_a_request_is_numbered_and_knows_who_asked(tmp_path: Path) -> None:
    assert sessions.read_all(tmp_path) == []
    assert sessions.write_request(tmp_path, {"overrides": ["a=1"], "checkpoint": 3}) == 1
    assert sessions.write_request(tmp_path, {}) == 2
    (tmp_path / "10.request.json").write_text("{}")
    assert sessions.write_request(tmp_path, {}) == 11
    first, *_ = found = sessions.read_all(tmp_path)
    assert [session.number for session in found] == [1, 2, 10, 11]
    assert first.request["overrides"] == ["a=1"] and first.checkpoint == 3
    assert first.request["pid"] == os.getpid() and first.request["host"] == socket.gethostname()
    assert first.request["boot_id"] == process_identity.boot_id()


def test_other_files_are_passed_over(tmp_path: Path) -> None:
    for name in ("1.json", "x.request.json", ".1.request.json.tmp-0", "1.request.json.bak"):
        (tmp_path / name).write_text("{}")
    assert sessions.read_all(tmp_path) == []


def test_the_guard_of_this_machine_and_boot_lives() -> None:
    pid = os.getpid()
    guarded = record(guard_pid=pid, guard_start_ticks=process_identity.start_ticks(pid))
    assert session_of(1, {}, guarded).guard_is_alive
    assert not session_of(1, {}, guarded | {"guard_start_ticks": 1}).guard_is_alive
    assert not session_of(1, {}, guarded | {"boot_id": "another"}).guard_is_alive
    assert session_of(1, {}, guarded | {"host": "before"}).guard_is_alive, (
        "this machine has another name by now"
    )
    assert not session_of(1, {}, guarded | {"host": "elsewhere", "boot_id": "its own"}).guard_is_alive
    assert not session_of(1, {}, record()).guard_is_alive and not session_of(1, {}, None).guard_is_alive


def test_each_rank_keeps_its_own_traceback(tmp_path: Path) -> None:
    names = [sessions.traceback_file(tmp_path, 3, rank).name for rank in (0, 12)]
    assert names == ["3.traceback.txt", "3.rank-12.traceback.txt"]


@pytest.mark.parametrize("state", ["starting", "running"])
def test_a_live_process_is_believed(state: str) -> None:
    session = session_of(1, {}, record(state=state))
    assert session.state == state and session.error is None
    assert session.supervisor_pid == (os.getpid() if state == "running" else None)


@pytest.mark.parametrize(
    "change",
    [
        {"boot_id": "another boot"},
        {"start_ticks": 1},  # the pid was given to another process since
        {"pid": "gone"},
    ],
)
@pytest.mark.parametrize("state", ["starting", "running"])
def test_a_session_whose_process_is_gone_reads_as_crashed(
    change: dict[str, Any], state: str, messages: Messages
) -> None:
    said = record(state=state, **change)
    if said["pid"] == "gone":
        said |= {"pid": ended_pid(), "start_ticks": None}
    session = session_of(1, {}, said)
    assert session.state == "crashed" and session.supervisor_pid is None
    messages.check(session.error)
    assert session_of(1, said, None).state == "crashed"  # asked for, and it died before it began


@pytest.mark.parametrize("state", ["succeeded", "failed", "stopped", "crashed"])
def test_an_ended_session_stays_ended_and_has_its_error(state: str) -> None:
    session = session_of(1, {}, record(state=state, boot_id="another boot", error="ValueError: x"))
    assert session.state == state and session.error == "ValueError: x" and session.supervisor_pid is None


def test_another_machine_is_not_judged() -> None:
    session = session_of(1, {}, record(host="elsewhere", boot_id="another"))
    assert session.state == "running" and not session.is_on_this_machine


def test_a_machine_that_has_another_name_by_now_knows_its_own_process() -> None:
    session = session_of(1, {}, record(host="before"))
    assert session.state == "running" and session.is_on_this_machine


def test_under_another_host_name_the_lock_decides_whether_it_runs(tmp_path: Path, messages: Messages) -> None:
    """F40: a laptop in another network, a container that was made anew, a copy of what runs elsewhere."""
    (tmp_path / "lock").touch()
    (tmp_path / "sessions").mkdir()
    sessions.write_request(tmp_path / "sessions", {})
    gone = record(host="before", boot_id="another")
    (tmp_path / "sessions" / "1.json").write_bytes(sessions.to_json(gone))
    with (tmp_path / "lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert [one.state for one in sessions.read_all(tmp_path / "sessions")] == ["running"]
    [session] = sessions.read_all(tmp_path / "sessions")
    messages.check(session.error)
    assert session.state == "crashed"
    (tmp_path / "lock").unlink()
    assert sessions.read_all(tmp_path / "sessions")[0].state == "running", "unknown"


def test_a_lock_that_other_machines_may_hold_proves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lock").touch()
    session = session_of(1, {}, record(host="elsewhere", boot_id="another"), tmp_path / "lock")
    monkeypatch.setattr(mounts, "file_system_type", lambda _: "nfs4")
    assert session.state == "running"


def test_an_end_between_the_look_at_the_record_and_that_at_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "1.json"
    path.write_bytes(sessions.to_json(record()))

    def end(*_: object) -> bool:
        path.write_bytes(sessions.to_json(record(state="succeeded")))
        return False

    monkeypatch.setattr(process_identity, "is_alive", end)
    assert sessions.read(tmp_path / "none", path, number=1).state == "succeeded"


def test_a_state_does_not_change_under_its_reader() -> None:
    """What was read as running must not read as crashed because its process, with a new record, has ended."""
    with subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE
    ) as child:
        ticks = process_identity.start_ticks(child.pid)
        session = session_of(1, {}, record(pid=child.pid, start_ticks=ticks))
        assert session.state == "running"
    assert session.state == "running"


def test_a_damaged_record_leaves_the_others_readable(tmp_path: Path) -> None:
    for _ in range(3):
        sessions.write_request(tmp_path, {})
    (tmp_path / "1.json").write_bytes(b"{")
    (tmp_path / "2.json").write_bytes(b"[1]")
    (tmp_path / "3.request.json").write_bytes(b"\xff")
    found = sessions.read_all(tmp_path)
    assert [session.number for session in found] == [1, 2, 3]
    assert found[0].record is None and found[1].record is None and found[2].request == {}
    assert found[0].state == "starting"


@pytest.mark.parametrize(
    ("value", "moment"),
    [
        (0, 0.0),
        (1.5, 1.5),
        (1e11, None),
        (-1, None),
        (math.nan, None),
        (True, None),
        ("1", None),
        (None, None),
    ],
)
def test_a_time_of_a_record_must_be_plausible(value: object, moment: float | None) -> None:
    assert sessions.unix_seconds(value) == moment and type(sessions.unix_seconds(value)) is type(moment)


def test_json_keeps_what_it_has_no_word_for(tmp_path: Path) -> None:
    value = {
        "nan": math.nan,
        "inf": -math.inf,
        "name": os.fsdecode(b"\xff.py"),
        "text": "größer",
        "path": Path("/a"),
    }
    found = json.loads(sessions.to_json(value))
    assert math.isnan(found["nan"]) and found["inf"] == -math.inf
    assert os.fsencode(found["name"]) == b"\xff.py" and found["path"] == "/a"
    assert "größer".encode() in sessions.to_json({"text": "größer"})
    sessions.write_request(tmp_path, {"command": [os.fsdecode(b"\xff")]})
    assert os.fsencode(sessions.read_all(tmp_path)[0].request["command"][0]) == b"\xff"


def test_a_program_of_python_records_itself_and_has_no_supervisor(tmp_path: Path, messages: Messages) -> None:
    folder = tmp_path / "sessions"
    folder.mkdir()
    lock = (tmp_path / "lock").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    number = sessions.write_request(folder, {"kind": "python"})
    own = UnsupervisedRecord(folder / "1.json", number)
    (found,) = sessions.read_all(folder)
    assert found.state == "running" and found.is_python and found.supervisor_pid is None
    assert found.record is not None and found.record["format"] == SESSION_FORMAT
    gone = {**found.record, "pid": ended_pid()}
    (folder / "1.json").write_bytes(sessions.to_json(gone))
    (found,) = sessions.read_all(folder)
    messages.check(found.error)
    assert found.state == "crashed"
    (folder / "1.json").write_bytes(sessions.to_json(found.record | {"pid": os.getpid()}))
    (found,) = sessions.read_all(folder)
    assert found.state == "running"
    lock.close()
    (found,) = sessions.read_all(folder)
    assert found.state == "crashed", "no process has its lock"
    own.end("stopped", "closed")
    (found,) = sessions.read_all(folder)
    assert found.record is not None and (found.state, found.error) == ("stopped", None)
    assert found.record["reason"] == "closed" and found.record["seconds"] >= 0


class Rude(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("error", "state", "said"),
    [
        (ValueError("x\ny"), "failed", "ValueError: x"),
        (SystemExit(3), "failed", "SystemExit: 3"),
        (Rude(), "failed", "Rude: <its str() raised RuntimeError>"),
        (KeyboardInterrupt(), "stopped", None),
    ],
)
def test_what_ended_it_is_recorded_whatever_it_is(
    tmp_path: Path, error: BaseException, state: str, said: str | None
) -> None:
    UnsupervisedRecord(tmp_path / "1.json", 1).end("succeeded", "finished", error=error)
    found = sessions.read(tmp_path / "1.request.json", tmp_path / "1.json", number=1)
    assert (found.state, found.error) == (state, said)


def test_on_a_full_disk_the_end_overwrites_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    where = ".tmp-"

    def refuse(operation: str, path: str) -> None:
        if operation == "open" and where in path:
            raise OSError(errno.ENOSPC, "No space left on device")

    own = UnsupervisedRecord(tmp_path / "1.json", 1)
    monkeypatch.setattr(durable, "fault", refuse)
    with pytest.raises(OSError, match="No space"):
        UnsupervisedRecord(tmp_path / "2.json", 2)
    assert [path.name for path in tmp_path.iterdir()] == ["1.json"]
    own.end("stopped", "closed")
    assert json.loads((tmp_path / "1.json").read_bytes())["state"] == "stopped"
    where = ""  # not even there
    with pytest.raises(OSError, match="No space"):
        own.end("stopped", "closed")
    error = ValueError("mine")
    own.end("stopped", "closed", error=error)
    messages.check(error.__notes__[0])
    assert "[Errno 28]" in error.__notes__[0]


@pytest.mark.parametrize(
    ("record", "has_begun", "counts"),
    [
        ({"state": "succeeded"}, True, True),
        ({"state": "failed"}, True, True),
        ({"state": "failed"}, False, False),  # its settings did not fit, or its checkpoint is damaged
        ({"state": "stopped"}, False, True),
        ({"state": "crashed"}, False, True),  # killed while it loaded itself
        (None, False, False),  # it could not be started
    ],
)
def test_whose_wishes_hold(
    tmp_path: Path, record: dict[str, str] | None, has_begun: bool, counts: bool
) -> None:
    gone = {
        "host": socket.gethostname(),
        "pid": 2**22 + 1,
        "start_ticks": 1,
        "boot_id": process_identity.boot_id(),
    }
    if has_begun:
        (tmp_path / "3.jsonl").touch()
    assert session_of(3, gone, record).is_effective(tmp_path) == counts


def test_a_session_whose_files_are_gone_has_crashed(tmp_path: Path) -> None:
    assert sessions.read(tmp_path / "1.request.json", tmp_path / "1.json", number=1).state == "crashed"


def test_a_session_of_a_lost_machine_has_ended_when_a_later_one_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mounts, "file_system_type", lambda _: "nfs4")
    (tmp_path / "lock").touch()
    folder = tmp_path / "sessions"
    folder.mkdir()
    far = {"state": "running", "host": "far", "boot_id": "another boot", "pid": 7, "start_ticks": 1}
    for number in (1, 2):
        (folder / f"{number}.request.json").write_text(json.dumps({**far, "state": "starting"}))
        (folder / f"{number}.json").write_text(json.dumps(far))
    first, second = sessions.read_all(folder)
    assert (first.state, second.state) == ("crashed", "running")
    assert first.error is not None and first.recorded.state == "running"
