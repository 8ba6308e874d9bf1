"""Numbered folders: each new one has the next number in its parent."""

from __future__ import annotations

import os
from pathlib import Path

from roost.base import durable


def numbers(root: Path) -> list[int]:
    """Returns the numbers of the folders in ``root``, ascending; none if there is no such folder."""
    if not root.is_dir():
        return []
    with os.scandir(root) as entries:
        return sorted(int(entry.name) for entry in entries if entry.name.isdecimal())


def create(root: Path) -> Path:
    """Creates the next folder in ``root``, which is created, too, and returns it. Safe with concurrent
    processes: creating a folder is atomic.

    Raises:
        OSError: The folder cannot be created.
    """
    durable.make_folders(root)
    number = 0
    while True:
        number = max([number, *numbers(root)]) + 1
        try:
            durable.make_folder(root / str(number))
            return root / str(number)
        except FileExistsError:
            continue  # another process has created it first
