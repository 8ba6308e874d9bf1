"""The journal of operations that the server was asked for. Each is one event in the lab's queue, so the
journal outlives the server."""

from __future__ import annotations

import sys
import time
from typing import Any

from roost.base.errors import RoostError
from roost.lab.queue.history import MAX_EVENTS
from roost.lab.queue.queue_store import QueueStore
from roost.operations import lab
from roost.operations.responses import JournalPage
from roost.package.resume import environment

KIND = "operation"
_CLEARED_UP_TO = "operations_since"
"""The setting of the queue that holds the number of the last cleared event."""
_UNLISTED = ("clear", "clear_journal", "open_run")
"""Operations without a line: a cleared journal is empty, and to name a run by its path changes nothing."""
_SHOWN_PARAMETERS = (
    "config", "config_path", "folder", "target_dir", "run", "record_path", "task", "task_ID", "checkpoint",
    "script", "cards", "off", "allowed", "most_per_card", "foreign", "now", "priority",
    "new_delay", "new_max", "new_devices_IDs",
)  # fmt: skip
"""The parameters that a line shows. Others, such as a command, may hold secrets."""
_MAX_LINES, _MAX_IDS, _MAX_FAILURE_LENGTH = 1000, 5, 300
_TIME_FORMAT = "%Y-%m-%d %H:%M:%S"


def add_entry(name: str, parameters: Any, result: Any) -> None:
    """Adds the line of one operation. If the queue cannot be written, only the server's log reports it,
    because the operation itself has succeeded.

    Args:
        name: The operation.
        parameters: Its parameters.
        result: Its result.
    """
    if name in _UNLISTED:
        return
    ids = [one.task for one in getattr(result, "queued", ())]
    if isinstance(result, dict) and "task_ID" in result:
        ids = [result["task_ID"]]
    _add(name, parameters, " ".join(["->", *ids[:_MAX_IDS]] if ids else []))


def add_failure(name: str, parameters: Any, error: RoostError) -> None:
    """Adds the line of an operation that failed: its message, without the value received, which may be a
    secret. Otherwise as `add_entry`."""
    setting = f"{error.setting}: " if error.setting else ""
    _add(name, parameters, f"failed: {setting}{environment.redact(error.message)}"[:_MAX_FAILURE_LENGTH])


def _add(name: str, parameters: Any, outcome: str) -> None:
    given = [
        f"{key}={value}"
        for key in _SHOWN_PARAMETERS
        if (value := getattr(parameters, key, None)) is not None and value is not False
    ]
    text = _escape_control_characters(" ".join(filter(None, [name, *given, outcome])))
    try:
        with lab.locked_queue() as store:
            store.add_event(KIND, text)
    except Exception as error:  # noqa: BLE001  - reported; the operation has its own result
        print(f"{name} is not in the journal, which could not be written: {error}", file=sys.stderr)


def _escape_control_characters(text: str) -> str:
    """Returns the text with every unprintable character escaped, so that a name cannot add a line or move the
    cursor of a terminal."""
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)


def read(offset: int | None) -> JournalPage:
    """Returns the lines since the last `clear`, at most a thousand.

    Args:
        offset: The offset of an earlier answer: the lines after it, oldest first; all lines if the queue was
            created again since and has fewer events. None: the newest lines.
    """
    with lab.open_queue() as store:
        return JournalPage(*read_in(store, offset)[:2])


def read_in(store: QueueStore, offset: int | None) -> tuple[int, list[str], int]:
    """Returns the offset and the lines as `read`, from an open queue; and the number of the last cleared
    event."""
    if offset and not store.events(after=offset - 1, limit=1):
        offset = 0
    since = int(store.settings().get(_CLEARED_UP_TO, 0))
    most = MAX_EVENTS if offset is None else _MAX_LINES
    found = store.events(after=max(offset or 0, since), kind=KIND, limit=most)[-_MAX_LINES:]
    lines = [f"{time.strftime(_TIME_FORMAT, time.localtime(one.at))} {one.text}" for one in found]
    return found[-1].seq if found else max(offset or 0, since), lines, since


def clear() -> None:
    """Makes the journal begin here for all readers. The events remain in the queue."""
    with lab.locked_queue() as store:
        found = store.events(kind=KIND)
        if found:
            store.set_setting(_CLEARED_UP_TO, found[-1].seq)
