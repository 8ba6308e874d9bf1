"""The owner file of a package, `sessions/owner.json`: which session of which machine may write to it.

::

    claimed     before a session's request file is written
    renewed     by the session's supervisor, every `HEARTBEAT_SECONDS`
    removed     by the session's guard, at the end of its last process

Every heartbeat first reads the file. Another owner with a higher session number has taken the package over:
the session ends without a save. The numbers of sessions rise, so of two owners that overwrite each other's
files the later one wins.
"""

# Standard library only

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

from roost.base import durable
from roost.base.errors import Refused
from roost.package.session_schema import JsonFields, process_fields

HEARTBEAT_SECONDS = 10.0
SILENT_SECONDS = 180.0
"""After so long without a heartbeat an owner counts as gone. Network disks show a change up to a minute
late."""
NAME = "sessions/owner.json"
"""The path in a package."""
_FORMAT = 1
_MAX_BYTES = 1 << 16
_CLAIM_SECONDS, _CLAIM_TICK_SECONDS = 10.0, 0.05
"""A claim takes milliseconds; after so long the process that made it was killed."""


class PackageOwner(JsonFields):
    """The content of an owner file. All owners differ: each has a token of its own, and each heartbeat
    another number."""

    format: int = _FORMAT
    host: str = ""
    boot_id: str = ""
    pid: int = 0
    """The supervisor, or the process that starts it."""
    start_ticks: int | None = None
    user: str = ""
    session: int = 0
    token: str = ""
    started: float = 0.0
    """When the session was begun, Unix seconds of its machine."""
    heartbeat: int = 0
    """The number of renewals; what changes from one to the next."""
    time: float = 0.0
    """When the file was written, Unix seconds of its machine: for people, never compared."""


def path_of(package: Path) -> Path:
    """Returns the path of a package's owner file."""
    return package / NAME


def read(path: Path) -> PackageOwner | None:
    """Reads an owner file; None if there is none, or it is not one."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            fields = dict(json.loads(os.read(fd, _MAX_BYTES)))
        finally:
            os.close(fd)
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    found = PackageOwner.from_json(fields)
    is_valid = all(type(found.get(name)) is kind for name, kind in _KINDS.items())
    return found if is_valid else None


_KINDS: dict[str, type] = {"host": str, "boot_id": str, "session": int, "token": str}


def claim(package: Path, *, session: int, token: str, known: str | None = None) -> None:
    """Names the caller's session as the owner of a package. The caller has the package's lock, and has found
    no owner on another machine, or takes the package over from it. Of several machines that do so at the same
    moment the first one wins.

    Args:
        package: The package.
        session: The number of the session.
        token: The token of the session.
        known: The token of the owner from which the package is taken over.

    Raises:
        Refused: A session of another machine was begun, or has taken the package over, at the same moment.
        OSError: The file cannot be written.
    """
    path, owner = path_of(package), _new_owner(session, token)
    with _claiming(path):
        found = read(path)
        if found is not None and found.token not in (token, known) and _is_rival(found, owner, path):
            raise Refused(
                f"host {found.host} (user {found.user}) has begun a session of the package, or has taken it "
                "over, at the same moment",
                where=package,
                fix="type the command again when that session has ended",
            )
        durable.write_unsynced(path, _encode(owner))


@contextlib.contextmanager
def _claiming(path: Path) -> Iterator[None]:
    """Keeps other machines from a claim in the block, by a file that only one can create: a lock need not
    reach them."""
    mark = path.with_name(f"{path.name}.claim")
    deadline = time.monotonic() + _CLAIM_SECONDS
    while True:
        try:
            durable.create_unsynced(mark, b"")
            break
        except FileExistsError:
            if time.monotonic() > deadline and _is_left(mark):
                durable.discard(mark)
            time.sleep(_CLAIM_TICK_SECONDS)
    try:
        yield
    finally:
        durable.discard(mark)


def _is_left(mark: Path) -> bool:
    """Whether the process that made a claim was killed in the block. Another one that waits as long may have
    removed that claim, and made its own."""
    try:
        return durable.file_system_time(mark.parent) - mark.stat().st_mtime > _CLAIM_SECONDS
    except FileNotFoundError:
        return False


def _is_rival(found: PackageOwner, owner: PackageOwner, path: Path) -> bool:
    """Whether the owner in the file is another machine that claims the session of ``owner``, and not one that
    was killed before its session began. On this machine the lock decides."""
    if found.session < owner.session or (found.host, found.boot_id) == (owner.host, owner.boot_id):
        return False
    return durable.file_system_time(path.parent) - path.stat().st_mtime < SILENT_SECONDS


def _new_owner(session: int, token: str) -> PackageOwner:
    now = time.time()
    return PackageOwner(
        format=_FORMAT,
        **process_fields(os.getpid()),
        user=user_name(),
        session=session,
        token=token,
        started=round(now, 3),
        heartbeat=0,
        time=round(now, 3),
    )


def is_owned_by_other(path: Path, session: int, token: str) -> bool:
    """Whether an owner file names a later session than this one, or one of the same number on another
    machine."""
    found = read(path)
    return found is not None and (found.session, found.token != token) > (session, False)


def release(path: Path, session: int, token: str) -> None:
    """Removes the owner file of an ended session, unless another session owns the package now."""
    if not is_owned_by_other(path, session, token):
        durable.discard(path)  # if it remains, the session record says that it has ended


def require_not_taken_over(package: Path, session: int) -> None:
    """Checks that no later session owns a package, before a session makes a checkpoint visible.

    Raises:
        Refused: Another machine has taken the package over.
    """
    found = read(path_of(package))
    if found is not None and found.session > session:
        raise Refused(f"the run was {describe_takeover(found)}", where=package)


def describe_takeover(owner: PackageOwner) -> str:
    """Returns ``taken over by host B (session 2, user ann)``."""
    return f"taken over by host {owner.host} (session {owner.session}, user {owner.user})"


class Heartbeat:
    """Renews the owner file of one session, and notices when another one has taken its package over.

    Args:
        path: The owner file.
        session: The number of the session.
        token: Its token.
    """

    def __init__(self, path: Path, session: int, token: str) -> None:
        self._path = path
        self._owner = _new_owner(session, token)
        self._written: PackageOwner | None = None

    def beat(self) -> PackageOwner | None:
        """Renews the file. Returns the owner that has taken the package over, whose file remains as it is;
        else None. What cannot be written is tried again at the next heartbeat."""
        found = read(self._path)
        if found is not None and found.session >= self._owner.session and not self._is_own(found):
            return found
        if found is not None and self._written is None and found.token == self._owner.token:
            self._owner.started, self._written = found.started, found  # the claim, written a moment ago
            return None
        self._owner.heartbeat += 1
        self._owner.time = round(time.time(), 3)
        try:
            durable.write_unsynced(self._path, _encode(self._owner))
        except OSError:
            with contextlib.suppress(OSError):  # a full disk: the time of the file is renewed without a block
                os.utime(self._path)
            return None
        self._written = PackageOwner.from_json(self._owner)
        return None

    def _is_own(self, found: PackageOwner) -> bool:
        """Whether the file is as this process has written it, or the claim of its session. A copy of the
        whole machine has the same token and writes other heartbeats."""
        if self._written is not None:
            return found == self._written
        return found.token == self._owner.token


def _encode(owner: PackageOwner) -> bytes:
    return json.dumps(owner, separators=(",\n ", ": ")).encode() + b"\n"


def user_name() -> str:
    """Returns the name of the user of this process."""
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a user without an entry, as in containers
        return str(os.getuid())
