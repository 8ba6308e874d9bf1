"""The feed of one mirror with retries: after a failure it prints one line and tries again later."""

# Not durable: a lock; nothing resumes from it

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path

from roost.base import durable
from roost.base.errors import Refused
from roost.base.text.terminal_text import escape_control
from roost.train.mirrors.mirror_process import FlushReport
from roost.train.mirrors.record_feed import RecordFeed
from roost.train.mirrors.sink import SessionEnd, Sink

_POSITION_SECONDS = 10.0
"""Seconds between two saves of the position, each of which waits for the disk. A kill in between costs work,
not rows."""
_FIRST_DELAY, _LONGEST_DELAY = 1.0, 60.0
_MAX_CHARACTERS = 300


class RetryingFeed:
    """Sends new rows until the session ends, with a new sink after each failure; no error of the mirror
    leaves this class.

    Args:
        package: The folder with ``records`` and ``media``.
        kind: The name of the mirror, for messages.
        make: Makes a sink.
        note: The file that keeps the position; a file ``.lock`` next to it excludes other processes.
        clock: A monotonic clock in seconds.
    """

    def __init__(
        self,
        package: Path,
        kind: str,
        make: Callable[[], Sink],
        note: Path,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._package, self._kind, self._make, self._note = package, kind, make, note
        self._clock = clock
        self._lock_fd = -1
        self._feed: RecordFeed | None = None
        self._delay = _FIRST_DELAY
        self._try_at = self._note_at = clock()
        self._failed = False

    def send_new(self) -> None:
        """Sends new rows, unless it waits after a failure."""
        if self._clock() < self._try_at:
            return
        try:
            self._send()
        except Exception as error:  # noqa: BLE001  - printed; it must end neither the run nor the mirror
            self._give_up(error)

    def _send(self) -> None:
        if self._feed is None:
            self._take_lock()
            self._feed = RecordFeed(self._package, self._make(), self._note)
            rows = self._feed.open()
            if self._failed:
                self._print(f"works again; {rows} rows were sent late")
            self._failed, self._delay = False, _FIRST_DELAY
        else:
            self._feed.send_new()
        if self._clock() >= self._note_at:
            self._feed.save_position()
            self._note_at = self._clock() + _POSITION_SECONDS

    def finish(self, end: SessionEnd) -> None:
        """Sends the last rows at once and closes the sink, as the session has ended."""
        self._try_at = self._clock()
        self.send_new()
        if self._feed is None:
            self._print("`roost mirror --flush` sends the missing rows, or the next session")
            return
        try:
            self._feed.close(end)
        except Exception as error:  # noqa: BLE001  - printed
            self._give_up(error)

    def flush(self, end: SessionEnd) -> FlushReport:
        """Sends everything that the sink lacks of an ended session, in one try, and closes the sink."""
        feed: RecordFeed | None = None
        try:
            self._take_lock()
            feed = RecordFeed(self._package, self._make(), self._note)
            rows = feed.open()
            feed.close(end)
        except Exception as error:  # noqa: BLE001  - reported
            if feed is not None:
                with contextlib.suppress(Exception):
                    feed.discard()
            return FlushReport(error=_format_error(error))
        return FlushReport(rows=rows)

    def _give_up(self, error: Exception) -> None:
        if not self._failed:
            self._print(
                f"{_format_error(error)}; training continues, and the mirror retries from the records"
            )
        self._failed = True
        feed, self._feed = self._feed, None
        if feed is not None:
            with contextlib.suppress(Exception):
                feed.discard()
        self._try_at = self._clock() + self._delay
        self._delay = min(2 * self._delay, _LONGEST_DELAY)

    def _take_lock(self) -> None:
        """Takes the lock, which is kept until the process ends: a process that a killed program left behind
        may still write.

        Raises:
            Refused: Another process writes this mirror.
        """
        if self._lock_fd >= 0:
            return
        durable.make_folder(self._note.parent, exist_ok=True)
        fd = os.open(self._note.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise Refused("another process still writes this mirror", where=self._note) from None
        self._lock_fd = fd

    def _print(self, text: str) -> None:
        with contextlib.suppress(OSError):  # a full disk
            print(f"mirror {self._kind}: {escape_control(text)}", flush=True)


def _format_error(error: Exception) -> str:
    text = " ".join(str(error).split()) or "it failed"
    return f"{type(error).__name__}: {text[:_MAX_CHARACTERS]}"
