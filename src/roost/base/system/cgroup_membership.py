"""The control groups of this process (standard library only)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

_VERSION_2 = "cgroup2"
PROC = Path("/proc/self")


def group_folders(controller: str, *, proc: Path = PROC) -> Iterator[Path]:
    """Yields the folders of the groups of the process and of their ancestors, of cgroup version 1 and 2, as
    far as they are visible to the process. Yields nothing on systems other than Linux.

    Args:
        controller: A controller of version 1: ``cpu``, ``memory``. Version 2 has one tree for all.
        proc: The folder of the process in ``/proc``.
    """
    try:
        mounts = (proc / "mountinfo").read_text(errors="surrogateescape").splitlines()
        lines = (proc / "cgroup").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return
    groups = {names: path for _, names, path in (line.split(":", 2) for line in lines)}
    for line in mounts:
        fields = line.split()
        kind, _, options = fields[fields.index("-") + 1 :]
        if kind == _VERSION_2:
            path = groups.get("")
        elif kind == "cgroup" and controller in options.split(","):
            path = next((path for names, path in groups.items() if controller in names.split(",")), None)
        else:
            continue
        if path is not None:
            yield from _group_and_ancestors(Path(fields[4]), fields[3], path)


def _group_and_ancestors(mount: Path, root: str, path: str) -> Iterator[Path]:
    """Yields the folders from the group at ``path`` up to the group at ``root``, which is mounted at
    ``mount``."""
    inside = path == root or path.startswith(root.rstrip("/") + "/")
    folder = mount / path[len(root) :].lstrip("/") if inside else mount
    while True:
        yield folder
        if folder == mount or mount not in folder.parents:
            return
        folder = folder.parent
