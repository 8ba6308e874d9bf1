"""Files with the time by which a session must have ended, which may appear or change while it runs.

A file holds one time: Unix seconds; an ISO time; JSON with a key ``time``, as the metadata of an AWS spot
instance has it; or the lines that systemd writes for a scheduled shutdown::

    USEC=1795271400000000
    WARN_WALL=1
    MODE=poweroff

An empty file, and a ``null`` for the time, hold no time: a writer may not be done.
"""

# Standard library only

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from roost.base.system.worker_protocol import DEADLINE_VARIABLE

VARIABLE = "ROOST_DEADLINE_FILE"
"""The deadline files of a session, separated as in PATH. The user may set it, too."""
SCHEDULED_SHUTDOWN = "/run/systemd/shutdown/scheduled"
"""Where systemd writes the shutdown that was requested by ``shutdown +30`` or ``shutdown 22:00``."""
_SYSTEMD_RUNS = "/run/systemd/system"
"""The folder by which sd_booted(3) finds out that systemd runs the machine."""
_DRY_RUN = "dry-"
"""With this a mode of systemd only warns."""
_MAX_BYTES = 4096
_MAX_SECONDS = 1e11
"""Larger numbers cannot be printed as a date."""


class FileDeadline(NamedTuple):
    """The earliest time in some deadline files."""

    at: float
    """Unix seconds."""
    path: str


class DeadlineFiles:
    """Deadline files that are read again and again. A file that has not changed costs one system call.

    Args:
        paths: The files; one that does not exist holds no time.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = tuple(dict.fromkeys(paths))
        self._seen: dict[str, tuple[tuple[int, int, int], float | None]] = {}
        self.new_troubles: list[str] = []
        """Lines about files that hold something else since the last `earliest`."""

    def earliest(self) -> FileDeadline | None:
        """Returns the earliest time that the files hold now; None if none holds any."""
        self.new_troubles = []
        found = [FileDeadline(at, path) for path in self.paths if (at := self._read(path)) is not None]
        return min(found, default=None)

    def _read(self, path: str) -> float | None:
        try:
            stat = os.stat(path)  # noqa: PTH116  - pathlib is not loaded in every process
        except OSError:
            self._seen.pop(path, None)
            return None
        key = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        seen = self._seen.get(path)
        if seen is not None and seen[0] == key:
            return seen[1]
        try:
            at = read_deadline(path)
        except (OSError, ValueError) as error:
            self.new_troubles.append(f"the deadline file {path} is not used: {error}")
            at = None
        self._seen[path] = (key, at)
        return at


def read_deadline(path: str) -> float | None:
    """Returns the time in a file, in Unix seconds; None if it is empty.

    Raises:
        OSError: The file cannot be read, or is no regular file.
        ValueError: It holds something else.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # never waits for the writer of a FIFO
    try:
        text = os.read(fd, _MAX_BYTES).decode("utf-8", "replace").strip()
    finally:
        os.close(fd)
    return parse_deadline(text)


def parse_deadline(text: str) -> float | None:
    """Returns the time of the text of a deadline file; None if it holds none.

    Raises:
        ValueError: It holds something else.
    """
    if not text:
        return None
    if text.startswith("{"):
        try:
            fields = json.loads(text)
        except (ValueError, RecursionError):
            raise ValueError("it is not JSON") from None
        if "time" not in fields:
            raise ValueError('its JSON has no "time"')
        return None if fields["time"] is None else _time(str(fields["time"]))
    if "USEC=" in text:
        lines = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
        if lines.get("MODE", "").startswith(_DRY_RUN):
            return None
        return _time(lines.get("USEC", ""), divisor=1e6)
    return _time(text)


def _time(text: str, *, divisor: float = 1.0) -> float:
    try:
        seconds = float(text) / divisor
    except ValueError:
        from datetime import datetime  # 3 ms, which few sessions need

        try:
            seconds = datetime.fromisoformat(text).timestamp()
        except (ValueError, OverflowError, OSError):
            raise ValueError(f"{text[:80]!r} is not a time") from None
    if not math.isfinite(seconds) or not 0 < seconds < _MAX_SECONDS:
        raise ValueError(f"{text[:80]!r} is not a time of this century")
    return seconds


def paths_of(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the deadline files of a session, by its environment; where systemd runs the machine, the last
    one is that of a scheduled shutdown."""
    given = filter(None, environment.get(VARIABLE, "").split(os.pathsep))
    has_systemd = os.path.isdir(_SYSTEMD_RUNS)  # noqa: PTH112
    return (*given, *([SCHEDULED_SHUTDOWN] if has_systemd else []))


def deadline_at_start(environment: Mapping[str, str]) -> float | None:
    """Returns the deadline that a session had when it started, by the environment of its worker; None without
    one."""
    try:
        return parse_deadline(environment.get(DEADLINE_VARIABLE, "").strip())
    except ValueError:  # a caller's own, of a worker that needs none
        return None
