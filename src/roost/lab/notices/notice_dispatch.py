"""What the daemon does for notices: it sends somebody, and never waits for him."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from roost.lab.notices import event_cursor, notice_events
from roost.lab.notices.event_cursor import Cursor
from roost.lab.notices.notice_events import EVENT_OF, WRONG_SETTINGS
from roost.lab.queue.queue_store import Store
from roost.lab.scheduling.stall_events import StallEvents
from roost.supervisor.notices import run_notice_list

_PAUSE_SECONDS = 60.0
_LOOK_SECONDS = 20.0
_AT_ONCE = 1000


class Errand:
    """One queue's. At most one process tells at a time; it goes on when the daemon has ended.

    Args:
        store: The queue.
    """

    def __init__(self, store: Store) -> None:
        self._store, self._stalls = store, StallEvents(store)
        self._child: subprocess.Popen[bytes] | None = None
        self._fd: int | None = None
        self._seq: int | None = None
        """Up to which event there is nothing to tell; None: to be read."""
        self._failed_with, self._again_at = "", 0.0
        self._is_forgotten = False
        self._for_left: subprocess.Popen[bytes] | None = None
        """Who tells of runs in no queue."""
        self._look_at = float("-inf")

    @property
    def fds(self) -> dict[int, str]:
        """Readable when the one who tells has ended."""
        return {} if self._fd is None else {self._fd: ""}

    def run(self) -> None:
        """Notes new stalls, and sends somebody if there is something to tell and somebody to be told."""
        now = time.monotonic()
        self._stalls.look(now)
        self._look_for_left(now)
        if self._is_at_it():
            return
        file = notice_events.path()
        asked = _version(file)
        if not asked:
            self._forget()
            return
        self._is_forgotten = False
        if (asked != self._failed_with or now >= self._again_at) and self._has_news():
            self._failed_with = asked
            self._again_at = now + _PAUSE_SECONDS
            self._send()

    def close(self) -> None:
        """Forgets who tells; he goes on."""
        for child in (self._child, self._for_left):
            if child is not None:
                child.returncode = 0  # it outlives us: nobody here waits for its end
        self._leave()

    def _look_for_left(self, now: float) -> None:
        """Sends somebody for the runs in no queue that were killed with all who watched over them."""
        if now >= self._look_at and (self._for_left is None or self._for_left.poll() is not None):
            self._look_at = now + _LOOK_SECONDS
            self._for_left = run_notice_list.send_unsent(os.environ)

    def _is_at_it(self) -> bool:
        if self._child is None:
            return False
        code = self._child.poll()
        if code is None:
            return True
        self._leave()
        self._seq = None
        if code == 0:
            self._failed_with = ""
        elif code == WRONG_SETTINGS:
            self._again_at = float("inf")
        return False

    def _leave(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
        self._child = self._fd = None

    def _forget(self) -> None:
        """Nobody is to be told: who is later, is not told of now."""
        if not self._is_forgotten:
            self._is_forgotten, self._seq = True, None
            event_cursor.forget(self._store.folder)

    def _has_news(self) -> bool:
        if self._seq is None:
            found = Cursor.load(self._store)
            if found is None:
                return True
            self._seq = found.seq
        while events := self._store.events(after=self._seq, most=_AT_ONCE):
            if any(event.kind in EVENT_OF for event in events):
                return True
            self._seq = events[-1].seq
        return False

    def _send(self) -> None:
        try:
            self._child = subprocess.Popen(
                [sys.executable, "-P", "-m", "roost.lab.notices.queue_notices", str(self._store.folder)],
                stdin=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )
            if hasattr(os, "pidfd_open"):
                self._fd = os.pidfd_open(self._child.pid)
        except OSError:  # there is no room for it: it is sent later
            return


def _version(file: Path) -> str:
    """Which settings stand there; empty if none do."""
    try:
        found = file.stat()
    except OSError:
        return ""
    return f"{found.st_ino}:{found.st_mtime_ns}:{found.st_ctime_ns}"
