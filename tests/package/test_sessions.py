"""Sessions: who ran, whether that process still lives, and what was asked of it."""

from __future__ import annotations

import errno
import json
import math
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from roost.base import durable, process
from roost.package import sessions
from roost.package.sessions import Session


def record(**more: Any) -> dict[str, Any]:
    return {"state": "running", **sessions.identity(), **more}


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
    assert first.request["boot_id"] == process.boot_id()


def test_other_files_are_passed_over(tmp_path: Path) -> None:
    for name in ("1.json", "x.request.json", ".1.request.json.tmp-0", "1.request.json.bak"):
        (tmp_path / name).write_text("{}")
    assert sessions.read_all(tmp_path) == []


@pytest.mark.parametrize("state", ["starting", "running"])
def test_a_live_process_is_believed(state: str) -> None:
    session = Session(1, {}, record(state=state))
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
def test_a_session_whose_process_is_gone_reads_as_crashed(change: dict[str, Any], state: str) -> None:
    said = record(state=state, **change)
    if said["pid"] == "gone":
        said |= {"pid": ended_pid(), "start_ticks": None}
    session = Session(1, {}, said)
    assert session.state == "crashed" and session.supervisor_pid is None
    assert "supervisor is gone" in str(session.error)
    assert Session(1, said, None).state == "crashed"  # asked for, and it died before it began


@pytest.mark.parametrize("state", ["succeeded", "failed", "stopped", "crashed"])
def test_what_has_ended_stays_ended_and_tells_its_error(state: str) -> None:
    session = Session(1, {}, record(state=state, boot_id="another boot", error="ValueError: x"))
    assert session.state == state and session.error == "ValueError: x" and session.supervisor_pid is None


def test_another_machine_is_not_judged() -> None:
    assert Session(1, {}, record(host="elsewhere", boot_id="another")).state == "running"


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


def test_a_program_of_python_records_itself_and_has_no_supervisor(tmp_path: Path) -> None:
    number = sessions.write_request(tmp_path, {"kind": "python"})
    body = {**sessions.identity(), "state": "running"}
    sessions.write_record(tmp_path, number, body)
    (found,) = sessions.read_all(tmp_path)
    assert found.state == "running" and found.is_python and found.supervisor_pid is None
    sessions.write_record(tmp_path, number, {**body, "pid": ended_pid()})
    (found,) = sessions.read_all(tmp_path)
    assert (
        found.state == "crashed" and found.error is not None and found.error.startswith("the program is gone")
    )


def test_on_a_full_disk_the_end_goes_where_the_start_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = OSError(errno.ENOSPC, "No space left on device")

    def refuse(operation: str, path: str) -> None:
        if operation == "open" and ".tmp-" in path:
            raise full

    monkeypatch.setattr(durable, "fault", refuse)
    with pytest.raises(OSError, match="No space"):
        sessions.write_record(tmp_path, 1, {"state": "running"})
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "1.json").write_bytes(sessions.to_json({"state": "running", "started": 1.5}))
    sessions.write_record(tmp_path, 1, {"state": "stopped"})
    assert json.loads((tmp_path / "1.json").read_bytes()) == {"state": "stopped"}
