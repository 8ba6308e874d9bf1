"""Whether a session of another machine owns a package, and whether it still gives signs of life.

The clocks of two machines are never compared. The age of the last heartbeat is the difference of two times of
files on the same disk: of the owner file, and of one that is made now. As a drive may stamp files by the
clock of the machine that writes them, an owner that seems silent is looked at twice: a living one has renewed
its file by then.
"""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from shlex import quote
from typing import NamedTuple

from roost.base import durable
from roost.base.errors import Refused
from roost.base.system import mounts, process_identity
from roost.base.text.durations import format_duration
from roost.base.text.timestamps import format_time
from roost.package.owner import owner_file
from roost.package.owner.owner_file import HEARTBEAT_SECONDS, SILENT_SECONDS, PackageOwner
from roost.package.session_schema import ENDED_STATES, SessionRecord

SECOND_LOOK_SECONDS = 1.5 * HEARTBEAT_SECONDS
"""The time between two looks at an owner that seems to be gone."""


class OtherOwner(NamedTuple):
    """A session of another machine that owns a package."""

    package: Path
    owner: PackageOwner
    idle_seconds: float
    """Since its last heartbeat."""
    changed: int
    """The time of the owner file, in nanoseconds: another one after each heartbeat."""

    @property
    def is_silent(self) -> bool:
        """Whether it has given no heartbeat for so long that it may be gone."""
        return self.idle_seconds >= SILENT_SECONDS

    @property
    def signs(self) -> tuple[str, int, int]:
        """The values that differ after each heartbeat."""
        return self.owner.token, self.owner.heartbeat, self.changed

    @property
    def name(self) -> str:
        """The host and session, for messages."""
        return f"host {self.owner.host} (session {self.owner.session}, user {self.owner.user})"

    def refusal(self) -> Refused:
        """Returns the error for a session that would begin meanwhile."""
        idle = format_duration(max(0.0, self.idle_seconds))
        since = format_time(self.owner.started) if self.owner.started else "an unknown time"
        path = quote(str(self.package))
        return Refused(
            f"the package is in use by {self.name} since {since}; its last sign of life was {idle} ago, and "
            f"one comes every {HEARTBEAT_SECONDS:g} s",
            where=self.package,
            fix=f"stop it there, or take the run over from it: roost continue {path} --steal",
        )


def find_other(package: Path) -> OtherOwner | None:
    """Returns the session of another machine that owns a package; None if there is none, or it has recorded
    its end. On this machine the lock decides.

    Raises:
        OSError: The files of the package cannot be read, or no file can be made in it.
    """
    path = owner_file.path_of(package)
    owner = owner_file.read(path)
    if owner is None or _is_of_this_machine(owner, path) or _has_ended(path.parent, owner.session):
        return None
    try:
        changed = path.stat().st_mtime_ns
    except FileNotFoundError:
        return None
    idle = durable.file_system_time(path.parent) - changed / 1e9
    return OtherOwner(package, owner, idle, changed)


def _is_of_this_machine(owner: PackageOwner, path: Path) -> bool:
    """Whether the lock, which the caller holds, says that the owner has ended: it was a process of this
    machine, or of an earlier boot of it."""
    is_same_host = owner.host == socket.gethostname()
    is_same_boot = owner.boot_id == process_identity.boot_id()
    if is_same_host and is_same_boot:
        return True
    # A new boot, or a new name, of this machine: so it is on a disk that no other machine sees. Elsewhere it
    # may be another machine of the same name, or a container of this one with a mount of its own.
    is_one_new = is_same_host or (is_same_boot and owner.boot_id != "")
    return is_one_new and mounts.is_local_only(mounts.file_system_type(path))


def _has_ended(folder: Path, session: int) -> bool:
    """Whether a session has recorded its end, and so has each one that restarted it automatically."""
    while True:
        record = SessionRecord.load(os.fspath(folder / f"{session}.json"))
        if record is None or record.state not in ENDED_STATES:
            return False
        if not isinstance(record.restarted_as, int) or record.restarted_as <= session:
            return True
        session = record.restarted_as


class OwnerLooks:
    """The looks at silent owners of packages, in memory: an owner is gone if a second look, some time after
    the first, finds it as it was."""

    def __init__(self) -> None:
        self._first: dict[Path, tuple[tuple[str, int, int], float]] = {}

    def seconds_until_gone(self, other: OtherOwner) -> float:
        """Returns how long to wait for the second look; 0 if the owner is gone.

        Raises:
            Refused: The owner has given a sign of life.
        """
        if not other.is_silent:
            self._first.pop(other.package, None)
            raise other.refusal()
        signs, at = self._first.get(other.package, (None, 0.0))
        now = time.monotonic()
        if signs is None:
            self._first[other.package] = (other.signs, now)
            return SECOND_LOOK_SECONDS
        if signs != other.signs:
            self._first[other.package] = (other.signs, now)
            raise other.refusal()
        return max(0.0, at + SECOND_LOOK_SECONDS - now)

    def forget(self, package: Path) -> None:
        """Forgets the looks at a package that is owned no longer."""
        self._first.pop(package, None)
