"""Where the lab of a user keeps its queue: a folder of a local disk that is nobody else's."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from roost.base import durable
from roost.base.errors import Refused

MOUNTS = Path("/proc/self/mountinfo")
_REMOTE = frozenset(
    [
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "davfs",
        "gfs2",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "ocfs2",
        "orangefs",
        "panfs",
        "pvfs2",
        "smb3",
        "smbfs",
    ]
)
_LOCAL_FUSE = frozenset(["fuse.fuse-overlayfs"])  # of a container without root; its files lie on this machine
_ELSEWHERE = "set ROOST_STATE to a folder of a local disk"


def folder() -> Path:
    """``lab`` in ``$ROOST_STATE``, else in ``$XDG_STATE_HOME/roost`` or ``~/.local/state/roost``; it need not
    exist."""
    if given := os.environ.get("ROOST_STATE"):
        return Path(given).expanduser().absolute() / "lab"
    home = Path(os.environ.get("XDG_STATE_HOME", ""))
    return (home if home.is_absolute() else Path.home() / ".local" / "state") / "roost" / "lab"


def prepare(path: Path, *, mounts: Path = MOUNTS) -> None:
    """Makes the folder if need be, and makes sure that it will do.

    Args:
        path: The folder.
        mounts: As for `file_system`.

    Raises:
        Refused: It lies on a network, is another user's, or others may look into it.
        OSError: It cannot be made.
    """
    if not path.is_dir():
        durable.make_folders(path.parent)
        durable.make_folder(path, exist_ok=True, mode=0o700)
    kind = file_system(path, mounts=mounts)
    if kind in _REMOTE or (kind.startswith("fuse.") and kind not in _LOCAL_FUSE):
        what = f"the lab's state would lie on a network file system ({kind}), where its queue can be damaged"
        raise Refused(what, where=path, fix=_ELSEWHERE)
    require_own(path, 0o700)


def require_own(path: Path, rights: int) -> None:
    """Makes sure that a folder or file is ours and has exactly these rights.

    Raises:
        Refused: It has not.
    """
    found = path.stat()
    if found.st_uid != os.geteuid():
        what = f"this is the lab of the user with the id {found.st_uid}"
        raise Refused(what, where=path, fix=f"run it as that user, or {_ELSEWHERE}")
    if (mode := stat.S_IMODE(found.st_mode) & 0o777) != rights:
        what = f"it has the rights {mode:o}, and needs {rights:o}: a queue holds secrets of its tasks"
        raise Refused(what, where=path, fix=f"`chmod {rights:o} {path}`")


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """Keeps all others out who ask for the same folder; it waits for them."""
    import fcntl

    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def file_system(path: Path, *, mounts: Path = MOUNTS) -> str:
    """The kind of the file system that a folder lies on, as the kernel calls it; empty if it does not tell.

    Args:
        path: The folder.
        mounts: The kernel's list.
    """
    try:
        lines = mounts.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return ""
    here, kind, depth = path.resolve(), "", -1
    for line in lines:
        fields = line.split()
        mount = Path(re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), fields[4]))
        if here.is_relative_to(mount) and len(mount.parts) >= depth:  # a later mount hides an earlier one
            kind, depth = fields[fields.index("-") + 1], len(mount.parts)
    return kind
