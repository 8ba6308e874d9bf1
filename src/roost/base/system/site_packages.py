"""Recognition of files that belong to an installed library."""

from __future__ import annotations

from pathlib import PurePath

LIBRARY_FOLDERS = frozenset(["site-packages", "dist-packages"])
"""The folders into which pip and Debian install libraries."""


def is_installed(path: PurePath | str) -> bool:
    """Whether a file or folder is inside a folder of installed libraries."""
    return not LIBRARY_FOLDERS.isdisjoint(PurePath(path).parts)
