"""What the server has carried out: a line each among the lab's events, kept while servers come and go."""

from __future__ import annotations

import sys
import time
from typing import Any, NamedTuple

from roost.lab.queue.history import MAX_EVENTS
from roost.operations import lab

KIND = "operation"
_CLEARED_UP_TO = "operations_since"
"""The setting that holds the number of the last event that was cleared."""
_CLEAR_OPERATION = "clear"
_SHOWN_PARAMETERS = (
    "config", "config_path", "folder", "target_dir", "run", "record_path", "task", "task_ID", "checkpoint",
    "cards", "off", "allowed", "most_per_card", "foreign", "now", "priority",
    "new_delay", "new_max", "new_devices_IDs",
)  # fmt: skip
"""Parameters that say what was meant. Others, such as a command, may hold what is nobody's business."""
_MAX_LINES, _MAX_IDS = 1000, 5
_TIME_FORMAT = "%Y-%m-%d %H:%M:%S"


class JournalPage(NamedTuple):
    """A part of it."""

    offset: int
    """To be given back for what comes after."""
    lines: list[str]


def add_entry(name: str, asked: Any, found: Any) -> None:
    """Adds a line. What was done is done: where the queue cannot be written, the server's log tells that.

    Args:
        name: Of the operation.
        asked: Its parameters.
        found: What came of it.
    """
    if name == _CLEAR_OPERATION:
        return  # what was cleared is empty
    given = [
        f"{key}={value}"
        for key in _SHOWN_PARAMETERS
        if (value := getattr(asked, key, None)) is not None and value is not False
    ]
    ids = [one.task for one in getattr(found, "queued", ())]
    if isinstance(found, dict) and "task_ID" in found:
        ids = [found["task_ID"]]
    text = _escape_control_characters(" ".join([name, *given, *(["->", *ids[:_MAX_IDS]] if ids else [])]))
    try:
        with lab.locked_queue() as store:
            store.add_event(KIND, text)
    except Exception as error:  # noqa: BLE001  - told, and no reason to call what was done undone
        print(f"{name} was done and could not be noted: {error}", file=sys.stderr)


def _escape_control_characters(text: str) -> str:
    """With what is no printable character made visible: nobody adds a line by a name, or moves a cursor."""
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)


def read(offset: int | None) -> JournalPage:
    """What was carried out since the last `clear`, at most a thousand lines.

    Args:
        offset: Of an answer before: what came after it, the oldest first; all of a queue that was made anew
            and has not come so far. None: the newest.
    """
    with lab.open_queue() as store:
        if offset and not store.events(after=offset - 1, limit=1):
            offset = 0
        since = int(store.settings().get(_CLEARED_UP_TO, 0))
        most = MAX_EVENTS if offset is None else _MAX_LINES
        found = store.events(after=max(offset or 0, since), kind=KIND, limit=most)[-_MAX_LINES:]
    lines = [f"{time.strftime(_TIME_FORMAT, time.localtime(one.at))} {one.text}" for one in found]
    return JournalPage(found[-1].seq if found else max(offset or 0, since), lines)


def clear() -> None:
    """Whoever reads from the beginning reads from here on; the events themselves stay."""
    with lab.locked_queue() as store:
        found = store.events(kind=KIND)
        if found:
            store.set_setting(_CLEARED_UP_TO, found[-1].seq)
