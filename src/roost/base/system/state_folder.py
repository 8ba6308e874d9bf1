"""The lab's folder with the queue of one user: on a local disk, and private to that user."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from roost.base import durable
from roost.base.errors import Refused
from roost.base.system import mounts
from roost.base.text.typed_path import typed_path

_SET_STATE_FOLDER = "set ROOST_STATE to a folder of a local disk"
_OTHER_OWNER_FIX = f"run it as that user, or {_SET_STATE_FOLDER}"
_FULL = (errno.ENOSPC, errno.EDQUOT)
_UNWRITABLE = (*_FULL, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO)


def lab_folder() -> Path:
    """Returns the folder ``lab`` in ``$ROOST_STATE``, else in ``$XDG_STATE_HOME/roost`` or
    ``~/.local/state/roost``. The folder may be missing."""
    if given := os.environ.get("ROOST_STATE"):
        return typed_path(given).absolute() / "lab"
    home = Path(os.environ.get("XDG_STATE_HOME", ""))
    return (home if home.is_absolute() else Path.home() / ".local" / "state") / "roost" / "lab"


def prepare(path: Path, *, mount_table: Path = mounts.MOUNT_TABLE) -> None:
    """Makes the folder if it is missing, and checks that it is on a local disk and private.

    Args:
        path: The folder.
        mount_table: See `mounts.file_system_type`.

    Raises:
        Refused: The folder cannot be made, is on a network file system, belongs to another user, or other
            users have access.
    """
    try:
        if not path.is_dir():
            durable.make_folders(path.parent)
            durable.make_folder(path, exist_ok=True, mode=0o700)
    except OSError as error:
        raise _unwritable(error, path) from error
    kind = mounts.file_system_type(path, mount_table=mount_table)
    if mounts.is_remote(kind):
        message = (
            f"the lab's state would be on a network file system ({kind}), where its queue can be damaged"
        )
        raise Refused(message, where=path, fix=_SET_STATE_FOLDER)
    require_owner_and_mode(path, 0o700)


@contextlib.contextmanager
def report_write_errors(path: Path) -> Iterator[None]:
    """Turns errors of writing in the lab's folder into `Refused`; all other errors of the block pass.

    Raises:
        Refused: The disk is full or read-only, or the permissions do not allow writing.
    """
    try:
        yield
    except OSError as error:
        named = error.filename if isinstance(error.filename, str | os.PathLike) else None
        if error.errno not in _UNWRITABLE or named is None or not Path(named).is_relative_to(path):
            raise
        raise _unwritable(error, path) from error


def _unwritable(error: OSError, path: Path) -> Refused:
    fix = f"make sure that you may write there, or {_SET_STATE_FOLDER}"
    if error.errno in _FULL:
        fix = f"free space on that disk and try again, or {_SET_STATE_FOLDER}"
    where = error.filename if isinstance(error.filename, str | os.PathLike) else path
    return Refused(f"the lab's state cannot be written: {error.strerror or error}", where=where, fix=fix)


def require_owner(path: Path) -> None:
    """Checks that a folder belongs to this user, if it exists.

    Raises:
        Refused: It belongs to another user.
    """
    try:
        owner = path.stat().st_uid
    except (FileNotFoundError, NotADirectoryError):
        return
    except PermissionError:
        raise Refused("another user's lab cannot be read", where=path, fix=_OTHER_OWNER_FIX) from None
    if owner != os.geteuid():
        raise Refused(f"this is the lab of the user with the id {owner}", where=path, fix=_OTHER_OWNER_FIX)


def require_owner_and_mode(path: Path, permissions: int) -> None:
    """Checks that a folder or file belongs to this user and has exactly these permissions.

    Raises:
        Refused: It belongs to another user or has other permissions.
    """
    require_owner(path)
    found = path.stat()
    if (mode := stat.S_IMODE(found.st_mode) & 0o777) != permissions:
        message = (
            f"the permissions are {mode:o} and must be {permissions:o}: a queue has secrets of its tasks"
        )
        raise Refused(message, where=path, fix=f"`chmod {permissions:o} {path}`")


@contextlib.contextmanager
def exclusive_lock(path: Path) -> Iterator[None]:
    """Holds an exclusive lock on a folder during the block; waits for other holders."""
    import fcntl

    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
