"""Which files belong to an installed library, whoever installed it."""

from __future__ import annotations

from pathlib import PurePath

LIBRARY_FOLDERS = frozenset(["site-packages", "dist-packages"])
"""Where pip and Debian put libraries."""


def is_installed(path: PurePath | str) -> bool:
    """Whether a file or folder lies where libraries are installed."""
    return not LIBRARY_FOLDERS.isdisjoint(PurePath(path).parts)
