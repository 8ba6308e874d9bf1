"""Whether a package may write to a remote copy: it must be the copy of the same run, not be ahead of the
package, and not belong to another machine that still writes it."""

from __future__ import annotations

import fcntl
import os
import re
import socket
import time
from pathlib import Path

from roost.base import safe_read
from roost.base.errors import Refused
from roost.base.system import process_identity
from roost.base.text.durations import format_age
from roost.package import sessions
from roost.package.kinds import PackageKind
from roost.package.owner import owner_file
from roost.package.remote import copy_index
from roost.package.remote.copy_index import CopyIndex, CopyOwner

FRESH_SECONDS = 300.0
"""A copy of a running session that was written within this time belongs to the machine that wrote it."""
_REQUEST = re.compile(r"sessions/(\d+)\.request\.json")


class OwnedElsewhere(Refused):
    """Another machine writes to the remote copy, or did a moment ago."""


def lock_uploads(package: Path) -> int | None:
    """Makes this the one process of this machine that uploads a package. Returns a descriptor to be closed at
    the end; None if another process uploads it.

    Raises:
        OSError: request.json cannot be opened.
    """
    fd = safe_read.open_fd(package / "request.json")
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    except OSError:  # a file system without locks
        return fd
    return fd


def own_owner(package: Path) -> CopyOwner:
    """Returns this machine, with the newest session of the package, as the owner of an index."""
    return CopyOwner(
        host=socket.gethostname(),
        boot_id=process_identity.boot_id(),
        user=owner_file.user_name(),
        session=max(sessions.used_numbers(package / "sessions"), default=0),
        time=time.time(),
    )


def require_writable(package: Path, index: CopyIndex | None, *, url: str, steal: bool = False) -> None:
    """Checks that this package may write to a copy.

    Args:
        package: The package's folder.
        index: The newest index of the copy; None: there is no copy.
        url: The copy, for messages.
        steal: Whether to take the copy from another machine, or from sessions that this package lacks.

    Raises:
        Refused: It is the copy of another run.
        OwnedElsewhere: The copy belongs to another machine, or has sessions that this package lacks.
    """
    if index is None:
        return
    require_same_run(package, index, url=url)
    if steal:
        return
    lacking = foreign_sessions(package, index)
    if lacking:
        raise OwnedElsewhere(
            f"the remote copy has session {lacking[0]}, of {index.owner.host}, which is not here",
            where=url,
            fix="pull the copy (`roost pull`) and continue that one; `--steal` replaces the copy",
        )
    require_not_owned(index, url=url)


def require_same_run(package: Path, index: CopyIndex, *, url: str) -> None:
    """Checks that a copy is that of this run. Raises Refused."""
    if index.run != copy_index.run_id((package / "request.json").read_bytes()):
        raise Refused(
            "this is the remote copy of another run",
            where=url,
            fix="use another URL for this one, or delete that copy if nothing needs it",
        )


def require_not_owned(index: CopyIndex, *, url: str) -> None:
    """Checks that no other machine writes to a copy. Raises OwnedElsewhere."""
    owner, age = index.owner, time.time() - index.owner.time
    if not index.ended and abs(age) < FRESH_SECONDS and not is_own(owner):
        raise OwnedElsewhere(
            f"{owner.host} (user {owner.user}, session {owner.session}) wrote to the remote copy "
            f"{format_age(max(0.0, age))}, and may run this package",
            where=url,
            fix=f"end it there, or wait until it was silent for {FRESH_SECONDS / 60:g} min (or `--steal`)",
        )


def is_own(owner: CopyOwner) -> bool:
    """Whether an owner is this machine, since it was started."""
    return (owner.host, owner.boot_id) == (socket.gethostname(), process_identity.boot_id())


def foreign_sessions(package: Path, index: CopyIndex) -> list[int]:
    """Returns the sessions that began in the copy and not in this package: another machine continued the run
    from the same point. A training has begun when it has records; a program has none."""
    found = []
    begun = "sessions/{}.json" if index.kind == PackageKind.COMMAND else "records/{}.jsonl"
    for name, file in index.files.items():
        match = _REQUEST.fullmatch(name)
        if match is None or begun.format(match[1]) not in index.files:
            continue
        if _sha256(package / name) != file.sha256:
            found.append(int(match[1]))
    return sorted(found)


def _sha256(path: Path) -> str | None:
    try:
        return safe_read.sha256(path)
    except OSError:
        return None
