"""The bytes that the file system has allocated for files and folders.

A file with several names (hard links) counts once. Blocks that files share otherwise (reflinks) are counted
for each of them: no portable call says that they are shared, and roost itself makes none.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_BLOCK_BYTES = 512
"""The unit of ``st_blocks``, whatever the file system uses."""
Inode = tuple[int, int]


def folder_bytes(folder: Path, seen: set[Inode] | None = None) -> int:
    """Returns what a folder takes on the disk. What cannot be read counts as nothing.

    Args:
        folder: The folder.
        seen: The files that are counted already, which get those of this folder added.
    """
    return sum(size for _, size in files(folder, set() if seen is None else seen))


def files(folder: Path | str, seen: set[Inode], prefix: str = "") -> Iterator[tuple[str, int]]:
    """Yields a folder, and each file and folder below it, with its allocated bytes; links are not followed.

    Args:
        folder: The folder.
        seen: As for `folder_bytes`.
        prefix: The path of the folder in the names that are yielded.
    """
    waiting = [(os.fspath(folder), prefix)]  # no recursion: folders may be nested more deeply than calls
    while waiting:
        path, prefix = waiting.pop()
        try:
            yield prefix, os.lstat(path).st_blocks * _BLOCK_BYTES
            with os.scandir(path) as listed:
                entries = list(listed)
        except OSError:
            continue
        for entry in entries:
            name = f"{prefix}/{entry.name}" if prefix else entry.name
            try:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append((entry.path, name))
                    continue
                found = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            inode = (found.st_dev, found.st_ino)
            if found.st_nlink == 1 or inode not in seen:
                seen.add(inode)
                yield name, found.st_blocks * _BLOCK_BYTES
