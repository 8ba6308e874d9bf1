"""Where the lab of a user keeps its queue: a folder of a local disk that is nobody else's."""

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

_SET_STATE_FOLDER = "set ROOST_STATE to a folder of a local disk"
_FULL = (errno.ENOSPC, errno.EDQUOT)
_UNWRITABLE = (*_FULL, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO)


def lab_folder() -> Path:
    """``lab`` in ``$ROOST_STATE``, else in ``$XDG_STATE_HOME/roost`` or ``~/.local/state/roost``; it need not
    exist."""
    if given := os.environ.get("ROOST_STATE"):
        return Path(given).expanduser().absolute() / "lab"
    home = Path(os.environ.get("XDG_STATE_HOME", ""))
    return (home if home.is_absolute() else Path.home() / ".local" / "state") / "roost" / "lab"


def prepare(path: Path, *, mount_table: Path = mounts.MOUNT_TABLE) -> None:
    """Makes the folder if need be, and makes sure that it will do.

    Args:
        path: The folder.
        mount_table: As of `mounts.kind_of`.

    Raises:
        Refused: It cannot be made, lies on a network, is another user's, or others may look into it.
    """
    try:
        if not path.is_dir():
            durable.make_folders(path.parent)
            durable.make_folder(path, exist_ok=True, mode=0o700)
    except OSError as error:
        raise _unwritable(error, path) from error
    kind = mounts.file_system_type(path, mount_table=mount_table)
    if mounts.is_remote(kind):
        what = f"the lab's state would lie on a network file system ({kind}), where its queue can be damaged"
        raise Refused(what, where=path, fix=_SET_STATE_FOLDER)
    require_owner_and_mode(path, 0o700)


@contextlib.contextmanager
def report_write_errors(path: Path) -> Iterator[None]:
    """Tells in words that what lies in the lab's folder cannot be written; what else goes wrong inside is
    none of its business.

    Raises:
        Refused: The disk is full or read-only, or the rights are not there.
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
        fix = f"make room on that disk and try again, or {_SET_STATE_FOLDER}"
    where = error.filename if isinstance(error.filename, str | os.PathLike) else path
    return Refused(f"the lab's state cannot be written: {error.strerror or error}", where=where, fix=fix)


def require_owner_and_mode(path: Path, rights: int) -> None:
    """Makes sure that a folder or file is ours and has exactly these rights.

    Raises:
        Refused: It has not.
    """
    found = path.stat()
    if found.st_uid != os.geteuid():
        what = f"this is the lab of the user with the id {found.st_uid}"
        raise Refused(what, where=path, fix=f"run it as that user, or {_SET_STATE_FOLDER}")
    if (mode := stat.S_IMODE(found.st_mode) & 0o777) != rights:
        what = f"it has the rights {mode:o}, and needs {rights:o}: a queue holds secrets of its tasks"
        raise Refused(what, where=path, fix=f"`chmod {rights:o} {path}`")


@contextlib.contextmanager
def exclusive_lock(path: Path) -> Iterator[None]:
    """Keeps all others out who ask for the same folder; it waits for them."""
    import fcntl

    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
