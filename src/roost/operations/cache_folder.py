"""The cache of roost: files that can be made again from packages."""

from __future__ import annotations

import os
import zlib
from contextlib import suppress
from pathlib import Path


def cache_folder() -> Path:
    """Returns ``$XDG_CACHE_HOME/roost``, or ``~/.cache/roost``; it need not exist."""
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (given if given.is_absolute() else Path.home() / ".cache") / "roost"


def package_index_path(folder: Path) -> Path:
    """Returns the file with the summaries of a folder's packages."""
    # Two folders with the same checksum replace each other's index, because an index names its folder.
    return cache_folder() / "ls" / f"{zlib.crc32(os.fsencode(folder)):08x}.json"


def write_cache_file(path: Path, data: bytes) -> None:
    """Replaces a file of the cache, if possible.

    Where it is not (a full disk, a read-only home), the next reader takes longer. The same holds after a
    power cut, because this does not wait for the disk: each reader of a file of the cache checks that it is
    whole.
    """
    from roost.base import durable

    with suppress(OSError):
        durable.make_folders(path.parent)
        durable.write_unsynced(path, data)
