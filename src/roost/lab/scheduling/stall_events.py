"""Stalls of live tasks, as their sessions tell them, become events of the queue."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec

from roost.lab.queue.queue_store import Store
from roost.lab.queue.task import LIVE, Task
from roost.package import sessions

STALLED = "stalled"
"""The kind of the event."""
_LOOK_SECONDS = 20.0


class _Stall(msgspec.Struct, frozen=True):
    """What is read of a `stall.Stall`."""

    time: float
    idle_seconds: float
    step: int | None = None
    phase: str | None = None
    stopped: bool = False


class StallEvents:
    """Looks for them from time to time: only where a record has changed is it read.

    Args:
        store: The queue.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._looked_at = float("-inf")
        self._seen: dict[str, tuple[int, int]] = {}

    def look(self, now: float) -> None:
        """Notes what is new, at most every 20 s.

        Args:
            now: Monotonic seconds.
        """
        if now - self._looked_at < _LOOK_SECONDS:
            return
        self._looked_at = now
        before, self._seen = self._seen, {}
        for task in self._store.tasks(states=LIVE):
            path = Path(task.package) / "sessions" / f"{task.session}.json"
            try:
                found = path.stat()
            except OSError:  # it has not begun, or was moved: nothing is known of it
                continue
            self._seen[task.id] = (found.st_ino, found.st_mtime_ns)
            if before.get(task.id) != self._seen[task.id]:
                self._note(task, (sessions.load_json(path) or {}).get("stalls"))

    def _note(self, task: Task, stalls: object) -> None:
        if not isinstance(stalls, list) or not stalls:
            return
        told = {event.text for event in self._store.events(task=task.id, kind=STALLED)}
        for text in dict.fromkeys(filter(None, map(describe_stall, stalls))):
            if text not in told:  # else by the daemon before this one
                self._store.note(STALLED, text, task=task.id)


def describe_stall(given: Any) -> str:
    """One stall in words, as the record of a session tells it; empty if it makes no sense."""
    try:
        stall = msgspec.convert(given, _Stall)
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(stall.time))
    except (msgspec.ValidationError, ValueError, OverflowError, OSError):  # it is no record of ours
        return ""
    phase = f", {stall.phase}" if stall.phase else ""
    step = f", at step {stall.step}{phase}" if stall.step is not None else ""
    paused = "; its worker is paused by a signal" if stall.stopped else ""
    return f"no step and no output for {stall.idle_seconds:g} s by {when}{step}{paused}"
