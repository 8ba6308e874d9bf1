"""The file systems of this machine: which one something lies on, and whether other machines see it too."""

from __future__ import annotations

import re
from pathlib import Path

MOUNT_TABLE = Path("/proc/self/mountinfo")
"""The kernel's list."""
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
_OF_HOST = frozenset(["vboxsf", "virtiofs"])
"""Of the machine on which this virtual one runs."""


def file_system_type(path: Path, *, mount_table: Path = MOUNT_TABLE) -> str:
    """The kind of the file system that something lies on, as the kernel calls it; empty if it does not tell.

    Args:
        path: A file or folder.
        mount_table: Which file systems there are, in the kernel's words.
    """
    try:
        lines = mount_table.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return ""
    here, kind, depth = path.resolve(), "", -1
    for line in lines:
        fields = line.split()
        mount = Path(re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), fields[4]))
        if here.is_relative_to(mount) and len(mount.parts) >= depth:  # a later mount hides an earlier one
            kind, depth = fields[fields.index("-") + 1], len(mount.parts)
    return kind


def is_remote(kind: str) -> bool:
    """Whether a file system of this kind lies on a network."""
    return kind in _REMOTE or (kind.startswith("fuse.") and kind not in _LOCAL_FUSE)


def is_local_only(kind: str) -> bool:
    """Whether for certain no other machine sees a file system of this kind: its locks are all locks here."""
    return bool(kind) and kind not in _OF_HOST and not is_remote(kind)
