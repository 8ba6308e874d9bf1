"""The file systems of this machine: the type of a path's file system, and whether other machines see it,
too."""

from __future__ import annotations

import re
from pathlib import Path

MOUNT_TABLE = Path("/proc/self/mountinfo")
"""The kernel's table of mounts."""
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
_LOCAL_FUSE = frozenset(["fuse.fuse-overlayfs"])  # of a container without root; its files are on this machine
_OF_HOST = frozenset(["vboxsf", "virtiofs"])
"""File systems that a virtual machine gets from its host."""


def file_system_type(path: Path, *, mount_table: Path = MOUNT_TABLE) -> str:
    """Returns the kernel's name of the type of a path's file system; empty if the kernel has no table.

    Args:
        path: A file or folder.
        mount_table: A file in the format of ``/proc/<pid>/mountinfo``.
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
    """Whether a file system of this type is on a network."""
    return kind in _REMOTE or (kind.startswith("fuse.") and kind not in _LOCAL_FUSE)


def is_drive(kind: str) -> bool:
    """Whether a program of this machine serves the file system (FUSE), such as a mounted drive of a cloud:
    what is written, and even synced, may be in its cache only."""
    return (kind == "fuse" or kind.startswith("fuse.")) and kind not in _LOCAL_FUSE


def is_local_only(kind: str) -> bool:
    """Whether certainly no other machine sees a file system of this type, so that all its locks are held
    here."""
    return bool(kind) and kind not in _OF_HOST and not is_remote(kind)
