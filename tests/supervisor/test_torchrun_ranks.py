"""What is known of ranks that a launcher has started, here and on other machines."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from roost.package.session_schema import SessionRecord
from roost.supervisor.exit_status import SessionOutcome
from roost.supervisor.session_record import SessionRecordFile
from roost.supervisor.torchrun_ranks import failure_on_other_machine, launched_pids

NOW = time.time()


def test_who_said_so_was_launched() -> None:
    report = b'{"launched": 5}\nwords\n[1]\n{"launched": "x"}\n{"launched": 7}\n{"lau'
    assert launched_pids(report) == [5, 7]


def ended(**more: Any) -> dict[str, Any]:
    end = {"state": "failed", "exit_code": 1, "reason": "exception", "error": "rank 1 failed: x"}
    return {**end, "host": "far", "ended": NOW - 1, **more}


@pytest.mark.parametrize(
    "others",
    [
        [],
        [ended(reason="peer")],
        [ended(state="succeeded")],
        [ended(ended=NOW - 1000)],
        [{"state": "failed", "reason": "start", "error": "it did not come up"}],
        [{"state": "running"}],
    ],
)
def test_no_other_machine_reports_a_cause(tmp_path: Path, others: list[dict[str, Any]]) -> None:
    assert failure_on_other_machine(written(tmp_path, others), seconds=0.0) is None


def test_the_cause_is_on_another_machine(tmp_path: Path) -> None:
    own = written(tmp_path, [ended(reason="peer", error="rank 0 is gone"), ended()])
    error = "rank 1 failed: x; on far, its output is in _output_node_2.txt"
    assert failure_on_other_machine(own, seconds=0.0) == SessionOutcome("failed", 1, "exception", error)


def written(folder: Path, others: list[dict[str, Any]]) -> SessionRecordFile:
    """The record of this machine, those of the others, and one of another session."""
    for node, fields in enumerate(others, 1):
        (folder / f"4.node-{node}.json").write_text(json.dumps(fields))
    (folder / "14.node-1.json").write_text(json.dumps(ended()))
    return SessionRecordFile(f"{folder}/4.json", SessionRecord.from_json({"ended": NOW}))
