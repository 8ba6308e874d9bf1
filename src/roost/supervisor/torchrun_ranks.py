"""The ranks that a launcher such as torchrun has started. Each rank reports its pid in the report pipe.

The ranks of other machines have a supervisor there, which writes into the same package.
"""

# Standard library only

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator

from roost.package.session_schema import LIVE_STATES, SessionRecord
from roost.supervisor.exit_status import PEER_FAILED, SessionOutcome
from roost.supervisor.session_record import SessionRecordFile

_RELATED_SECONDS = 60.0
"""A failure on another machine longer before this session's end is unrelated to it."""


def launched_pids(report: bytes) -> list[int]:
    """Returns the pids of the launched ranks in the order of their start. The pipe is open to all of their
    code, so malformed lines are skipped."""
    found = []
    for line in report.splitlines():
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(fields, dict) and isinstance(pid := fields.get("launched"), int):
            found.append(pid)
    return found


def failure_on_other_machine(own: SessionRecordFile, *, seconds: float) -> SessionOutcome | None:
    """Returns the failure of another machine in this session that no other rank caused; None if no supervisor
    reports one.

    Args:
        own: The record of the machine where the session was started.
        seconds: How long to wait for the records of the other machines.
    """
    deadline = time.monotonic() + seconds
    while True:
        others = dict(_records_of_other_machines(own))
        for node, record in others.items():
            is_own_failure = record.state in ("failed", "crashed") and record.reason != PEER_FAILED
            is_related = abs((record.ended or 0.0) - (own.fields.ended or 0.0)) < _RELATED_SECONDS
            if is_own_failure and is_related:
                error = f"{record.error}; on {record.host}, its output is in _output_node_{node}.txt"
                return SessionOutcome(record.state, record["exit_code"], record["reason"], error)
        have_ended = all(record.state not in LIVE_STATES for record in others.values())
        if have_ended or time.monotonic() > deadline:
            return None
        time.sleep(0.05)


def _records_of_other_machines(own: SessionRecordFile) -> Iterator[tuple[str, SessionRecord]]:
    folder, _, name = own.path.rpartition("/")
    prefix = f"{name.removesuffix('.json')}.node-"
    for entry in sorted(os.listdir(folder)):  # noqa: PTH208
        node = entry.removeprefix(prefix).removesuffix(".json")
        if entry == f"{prefix}{node}.json" and node.isdecimal():
            found = SessionRecord.load(f"{folder}/{entry}")
            if found is not None:
                yield node, found
