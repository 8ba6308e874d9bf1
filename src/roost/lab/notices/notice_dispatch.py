"""The daemon's part of notices: it starts the processes that send, and never waits for them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from roost.lab.notices import event_cursor, notice_events
from roost.lab.notices.event_cursor import NoticeCursor
from roost.lab.notices.notice_events import EVENT_BY_KIND, INVALID_SETTINGS_EXIT_CODE
from roost.lab.queue.queue_store import QueueStore
from roost.lab.scheduling.durability_events import DurabilityEvents
from roost.lab.scheduling.stall_events import StallEvents
from roost.supervisor.notices import run_notice_list

_RETRY_SECONDS = 60.0
"""The pause before another start with settings with which a sending process failed."""
_UNSENT_CHECK_SECONDS = 20.0
_EVENTS_PER_READ = 1000


class NoticeDispatcher:
    """Starts the sending processes of one queue. At most one sends at a time; it continues after the daemon
    ends.

    Args:
        store: The queue.
    """

    def __init__(self, store: QueueStore) -> None:
        self._store, self._stalls, self._durability = store, StallEvents(store), DurabilityEvents(store)
        self._child: subprocess.Popen[bytes] | None = None
        self._fd: int | None = None
        self._seq: int | None = None
        """No event up to this one needs a notice; None: read it from the cursor."""
        self._failed_with, self._retry_at = "", 0.0
        self._is_cursor_discarded = False
        self._unsent_process: subprocess.Popen[bytes] | None = None
        """The process that sends the notices of runs without a task."""
        self._unsent_check_at = float("-inf")

    @property
    def fds(self) -> dict[int, str]:
        """A descriptor that becomes readable when the sending process ends."""
        return {} if self._fd is None else {self._fd: ""}

    def run(self) -> None:
        """Records new stalls and copies that do not get further, and starts a sending process if there are
        receivers and events that need a notice."""
        now = time.monotonic()
        self._stalls.record_new(now)
        self._durability.record_new(now, wall=time.time())
        self._send_unsent(now)
        if self._is_sending():
            return
        version = _file_version(notice_events.settings_path())
        if not version:
            self._discard_cursor()
            return
        self._is_cursor_discarded = False
        if (version != self._failed_with or now >= self._retry_at) and self._has_event():
            self._failed_with = version
            self._retry_at = now + _RETRY_SECONDS
            self._start_sending()

    def close(self) -> None:
        """Releases the sending processes, which continue."""
        for child in (self._child, self._unsent_process):
            if child is not None:
                child.returncode = 0  # it outlives the daemon, which does not wait for its end
        self._release()

    def _send_unsent(self, now: float) -> None:
        """Starts a process for the notices of runs without a task whose guard and supervisor were killed."""
        if now >= self._unsent_check_at and (
            self._unsent_process is None or self._unsent_process.poll() is not None
        ):
            self._unsent_check_at = now + _UNSENT_CHECK_SECONDS
            self._unsent_process = run_notice_list.send_unsent(os.environ)

    def _is_sending(self) -> bool:
        if self._child is None:
            return False
        code = self._child.poll()
        if code is None:
            return True
        self._release()
        self._seq = None
        if code == 0:
            self._failed_with = ""
        elif code == INVALID_SETTINGS_EXIT_CODE:
            self._retry_at = float("inf")
        return False

    def _release(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
        self._child = self._fd = None

    def _discard_cursor(self) -> None:
        """Discards the cursor while there are no receivers: receivers that are added later get no notice of
        the events until then."""
        if not self._is_cursor_discarded:
            self._is_cursor_discarded, self._seq = True, None
            event_cursor.discard(self._store.folder)

    def _has_event(self) -> bool:
        if self._seq is None:
            cursor = NoticeCursor.load(self._store)
            if cursor is None:
                return True
            self._seq = cursor.seq
        while events := self._store.events(after=self._seq, limit=_EVENTS_PER_READ):
            if any(event.kind in EVENT_BY_KIND for event in events):
                return True
            self._seq = events[-1].seq
        return False

    def _start_sending(self) -> None:
        try:
            self._child = subprocess.Popen(
                [sys.executable, "-P", "-m", "roost.lab.notices.queue_notices", str(self._store.folder)],
                stdin=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )
            if hasattr(os, "pidfd_open"):
                self._fd = os.pidfd_open(self._child.pid)
        except OSError:  # such as no free process: it is started later
            return


def _file_version(file: Path) -> str:
    """Returns a text that changes with the file; empty if there is no file."""
    try:
        found = file.stat()
    except OSError:
        return ""
    return f"{found.st_ino}:{found.st_mtime_ns}:{found.st_ctime_ns}"
