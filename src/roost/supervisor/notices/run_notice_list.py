"""The list of runs outside the queue whose end must be notified; an entry stays until its notice was sent
(standard library only).

An entry is a small file. The guard creates it before the run starts; guard, supervisor and the sending
process hold its lock. An entry without a lock holder belongs to killed processes: the next command of this
user, or the daemon of the user's lab, starts a process that sends it
(`roost.lab.notices.unsent_run_notices`). Each command checks the list, so few modules are imported.
"""

# Standard library only
# Not durable: a lock and the name of a run while it runs; nothing resumes from it

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
"""Between two attempts at an entry that cannot be settled yet, such as that of a run on another machine."""
_MAX_BYTES = 1 << 16


class RunNoticeEntry(NamedTuple):
    """An entry of the list; the descriptor holds its lock."""

    path: str
    fd: int


class UnsentRunNotice(NamedTuple):
    """The content of an entry."""

    package: str
    session: int
    """The first session; restarts may have followed automatically."""
    settings: str
    """The file of receivers: the sending process may have another environment."""


def add_entry(spec: SessionSpec) -> RunNoticeEntry | None:
    """Adds a run to the list; None if that fails: then its notice is sent only at its end.

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
        os.write(
            fd, json.dumps([spec.package, spec.session, notice_folders.receivers_file(spec.env)]).encode()
        )
        os.utime(fd, (0, 0))  # not tried yet
    except OSError:
        os.close(fd)
        remove_entry(path)
        return None
    return RunNoticeEntry(path, fd)


def remove_entry(path: str) -> None:
    """Removes an entry from the list."""
    with contextlib.suppress(OSError):
        os.unlink(path)  # noqa: PTH108


def unsent_entries(env: Mapping[str, str]) -> list[str]:
    """Returns the entries without a lock holder that no process has tried within the last minute.

    Args:
        env: The environment of the user who started the runs.
    """
    folder = notice_folders.pending_folder(env)
    try:
        names = os.listdir(folder) if folder else []  # noqa: PTH208
    except OSError:
        return []
    return [path for name in names if _is_unsent(path := f"{folder}/{name}")]


def send_unsent(env: Mapping[str, str]) -> subprocess.Popen[bytes] | None:
    """Starts a process that sends the unsent notices, if there are any, and returns it; the caller need not
    wait."""
    if not unsent_entries(env):
        return None
    import subprocess

    line = [sys.executable, "-P", "-m", "roost.lab.notices.unsent_run_notices"]
    nowhere = subprocess.DEVNULL
    try:
        return subprocess.Popen(
            line, stdin=nowhere, stdout=nowhere, stderr=nowhere, cwd="/", start_new_session=True
        )
    except OSError:  # no process or memory: the next command tries again
        return None


@contextlib.contextmanager
def lock_entry(path: str) -> Iterator[UnsentRunNotice | None]:
    """Locks an entry; yields its content. None: another process holds it or has settled it, or it is invalid
    (then it is removed from the list)."""
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
    """Records the time of an attempt at an entry that could not be settled."""
    with contextlib.suppress(OSError):
        os.utime(path)


def _is_unsent(path: str) -> bool:
    try:
        written = os.stat(path).st_mtime  # noqa: PTH116
        if abs(time.time() - written) < _PAUSE_SECONDS:  # by the disk's clock, which may be ahead
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
