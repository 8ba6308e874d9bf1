from __future__ import annotations

import json
import re
from pathlib import Path

from roost.base.system import process_identity
from roost.package.session_schema import SessionRecord
from roost.supervisor.exit_status import SessionOutcome
from roost.supervisor.session_record import SessionRecordFile, initial_fields
from tests.messages import Messages

END = SessionOutcome("stopped", 75, "signal", None)


def test_a_session_s_record(tmp_path: Path) -> None:
    path = tmp_path / "1.json"
    record = SessionRecordFile(str(path), initial_fields(1, worker_pid=3, guard_pid=2, group=None))
    record.write()
    found = SessionRecordFile.load(str(path))
    assert found is not None
    assert found.fields == record.fields
    fields = found.fields
    assert process_identity.is_alive(fields["pid"], fields.start_ticks, str(fields.boot_id))
    found.note_worker_end(-9, seconds=1.23456)
    assert found.write_end(END) == []
    said = json.loads(path.read_bytes())
    assert (said["state"], said["exit_code"], said["worker_status"], said["seconds"]) == (
        "stopped", 75, "SIGKILL", 1.235
    )  # fmt: skip
    assert said["peak_memory_mb"] >= 0
    assert len(path.read_text().splitlines()) == len(said), "a field a line"


def test_none_that_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "1.json"
    assert SessionRecordFile.load(str(path)) is None
    for text in ("", "{", "[1]", "3", "\xff"):
        path.write_text(text)
        assert SessionRecordFile.load(str(path)) is None


def test_a_folder_that_is_gone(tmp_path: Path, messages: Messages) -> None:
    record = SessionRecordFile(str(tmp_path / "no" / "1.json"), SessionRecord.from_json({}))
    record.write_if_possible()
    first, second = record.write_end(END)
    assert "(stopped, signal)" in first
    for said in (re.sub(r"\.tmp-\w+", "", first), second):
        messages.check(said)
