"""Adds the stalls that sessions of live tasks have recorded to the events of the queue."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from roost.lab.queue.queue_store import QueueStore
from roost.lab.queue.task import LIVE, Task
from roost.package import session_folder, sessions

STALLED = "stalled"
"""The kind of the event."""
_LOOK_SECONDS = 20.0


class _Stall(msgspec.Struct, frozen=True):
    """The fields that are read of a recorded stall."""

    time: float
    idle_seconds: float
    step: int | None = None
    phase: str | None = None
    stopped: bool = False


class StallEvents:
    """Reads the stalls of live tasks from their session records, but only from changed files.

    Args:
        store: The queue.
    """

    def __init__(self, store: QueueStore) -> None:
        self._store = store
        self._last_read = float("-inf")
        self._file_versions: dict[str, tuple[int, int]] = {}

    def record_new(self, now: float) -> None:
        """Adds new stalls as events, at most every 20 s.

        Args:
            now: Monotonic seconds.
        """
        if now - self._last_read < _LOOK_SECONDS:
            return
        self._last_read = now
        before, self._file_versions = self._file_versions, {}
        for task in self._store.tasks(states=LIVE):
            path = task.folder / session_folder.FOLDER / f"{task.session}.json"
            try:
                found = path.stat()
            except OSError:  # it has not started, or was moved
                continue
            self._file_versions[task.id] = (found.st_ino, found.st_mtime_ns)
            if before.get(task.id) != self._file_versions[task.id]:
                record = sessions.load_record(path)
                self._note(task, record.stalls if record is not None else None)

    def _note(self, task: Task, stalls: object) -> None:
        if not isinstance(stalls, list) or not stalls:
            return
        recorded = {event.text for event in self._store.events(task=task.id, kind=STALLED)}
        for text in dict.fromkeys(filter(None, map(describe_stall, stalls))):
            if text not in recorded:  # a former daemon may have added it
                self._store.add_event(STALLED, text, task=task.id)


def describe_stall(given: Any) -> str:
    """Describes a stall from the record of a session; empty if the record is not valid."""
    try:
        stall = msgspec.convert(given, _Stall)
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(stall.time))
    except (msgspec.ValidationError, ValueError, OverflowError, OSError):  # another program has written it
        return ""
    phase = f", {stall.phase}" if stall.phase else ""
    step = f", at step {stall.step}{phase}" if stall.step is not None else ""
    paused = "; its worker is paused by a signal" if stall.stopped else ""
    return f"no step and no output for {stall.idle_seconds:g} s by {when}{step}{paused}"
