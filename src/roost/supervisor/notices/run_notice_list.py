"""The list of runs in no queue whose end somebody wants to be told; each stands there until he was told
(standard library only).

An entry is a small file. The guard makes it before the run begins; guard, supervisor and whoever tells hold
its lock. One that nobody holds was left by those who were killed: the next command of this user, or the
daemon of his lab, sends somebody (`roost.lab.notices.unsent_run_notices`). Each command looks: few modules
are imported.
"""

# Standard library only
# Not durable: a lock, and what was begun, while it runs; nothing resumes from it

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from roost.supervisor.notices import notice_folders

if TYPE_CHECKING:
    import subprocess

    from roost.supervisor.session_spec import SessionSpec

_PAUSE_SECONDS = 60.0
"""Between two looks at an entry that cannot be settled yet, such as that of a run on another machine."""
_MAX_BYTES = 1 << 16


class RunNoticeEntry(NamedTuple):
    """One, whose lock is held by a descriptor."""

    path: str
    fd: int


class UnsentRunNotice(NamedTuple):
    """What an entry says."""

    package: str
    session: int
    """Its first one; others may have followed by themselves."""
    settings: str
    """The file that says who is told: who looks may have another environment."""


def add_entry(spec: SessionSpec) -> RunNoticeEntry | None:
    """Adds a run; None if there is no room: then it is told at its end alone.

    Args:
        spec: Its first session.
    """
    folder = notice_folders.pending_folder(spec.env)
    if not folder:
        return None
    import json

    path = f"{folder}/{spec.token}"
    try:
        os.makedirs(folder, 0o700, exist_ok=True)  # noqa: PTH103
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        os.write(fd, json.dumps([spec.package, spec.session, notice_folders.receivers_file(spec.env)]).encode())
        os.utime(fd, (0, 0))  # nobody has looked at it
    except OSError:
        os.close(fd)
        remove_entry(path)
        return None
    return RunNoticeEntry(path, fd)


def remove_entry(path: str) -> None:
    """Takes an entry off the list."""
    with contextlib.suppress(OSError):
        os.unlink(path)  # noqa: PTH108


def unsent_entries(env: Mapping[str, str]) -> list[str]:
    """The entries that nobody holds, and at which nobody has looked within the last minute.

    Args:
        env: The environment of whoever began the runs.
    """
    folder = notice_folders.pending_folder(env)
    try:
        names = os.listdir(folder) if folder else []  # noqa: PTH208
    except OSError:
        return []
    return [path for name in names if _is_unsent(path := f"{folder}/{name}")]


def send_unsent(env: Mapping[str, str]) -> subprocess.Popen[bytes] | None:
    """Sends somebody, for whom nobody waits, if there are some; gives him."""
    if not unsent_entries(env):
        return None
    import subprocess

    line = [sys.executable, "-P", "-m", "roost.lab.notices.unsent_run_notices"]
    nowhere = subprocess.DEVNULL
    try:
        return subprocess.Popen(
            line, stdin=nowhere, stdout=nowhere, stderr=nowhere, cwd="/", start_new_session=True
        )
    except OSError:  # there is no room for it: the next one looks again
        return None


@contextlib.contextmanager
def lock_entry(path: str) -> Iterator[UnsentRunNotice | None]:
    """Holds an entry; gives what it says. None: somebody else has it, or has settled it, or it says nothing
    (then it is taken off the list)."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        yield None
        return
    try:
        yield _lock_and_read(fd, path)
    finally:
        os.close(fd)


def postpone_entry(path: str) -> None:
    """Notes that somebody has looked at an entry, and could not settle it."""
    with contextlib.suppress(OSError):
        os.utime(path)


def _is_unsent(path: str) -> bool:
    try:
        written = os.stat(path).st_mtime  # noqa: PTH116
        if abs(time.time() - written) < _PAUSE_SECONDS:  # by the clock of the disk, which may be ahead
            return False
    except OSError:
        return False
    from pathlib import Path

    from roost.base import safe_read

    return safe_read.is_locked(Path(path)) is False


def _lock_and_read(fd: int, path: str) -> UnsentRunNotice | None:
    import json

    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.stat(path).st_ino != os.fstat(fd).st_ino:  # noqa: PTH116
            return None
    except OSError:
        return None
    try:
        found = UnsentRunNotice(*json.loads(os.read(fd, _MAX_BYTES)))
    except (OSError, ValueError, TypeError):
        found = None
    if found is None or [*map(type, found)] != [str, int, str]:
        remove_entry(path)
        return None
    return found
