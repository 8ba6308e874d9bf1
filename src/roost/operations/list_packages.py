"""``ls``: the packages of a folder.

Ten thousand of them are listed in a tenth of a second: a package whose ``sessions`` folder has not changed
is taken from an index, for one look at that folder. The index is a cache; whoever removes it loses time only.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from roost.base.errors import NotFound
from roost.operations.caches import cache_folder
from roost.operations.row import Row

_FORMAT = 4
_CHANGING = frozenset(["starting", "running", "damaged"])


class _Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A row, and what its ``sessions`` folder was when it was made."""

    stamp: tuple[int, int]
    row: Row


class _Index(msgspec.Struct, frozen=True, array_like=True):
    format: int
    folder: str
    entries: dict[str, _Entry]


def list_packages(directory: Path | str | None = None) -> list[Row]:
    """The packages in a folder, by name, which for most is by time.

    Args:
        directory: The folder; one without packages stands for its ``runs``. None: the current one.

    Raises:
        NotFound: There is no such folder.
    """
    given = Path(directory if directory is not None else ".").absolute()
    if not given.is_dir():
        raise NotFound(
            "there is no such folder", received=str(given), fix="give the folder that holds the packages"
        )
    if (given / "request.json").is_file():
        return [_summarized(given)]
    rows = _rows(given)
    if not rows and (given / "runs").is_dir():
        rows = _rows(given / "runs")
    return rows


def _rows(folder: Path) -> list[Row]:
    index = _index_path(folder)
    known = _read(index, folder)
    entries: dict[str, _Entry] = {}
    stale = False
    for name, stamp in _stamps(folder):
        entry = known.get(name)
        if entry is None or entry.stamp != stamp or entry.row.state in _CHANGING:
            entry, stale = _fresh(folder / name, stamp), True
        if entry is not None:
            entries[name] = entry
    if stale or len(entries) != len(known):
        _write(index, _Index(_FORMAT, os.fspath(folder), entries))
    return [entry.row for _, entry in sorted(entries.items())]


def _stamps(folder: Path) -> Iterator[tuple[str, tuple[int, int]]]:
    """Each entry that has a ``sessions`` folder, with that folder's time and number.

    One of them changes when a session is added or ends, because their files are renamed into place, or when
    another package takes the name.
    """
    root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with os.scandir(root) as entries:
            for entry in entries:
                try:
                    found = os.stat(f"{entry.name}/sessions", dir_fd=root)  # quicker than by the whole path
                except OSError:
                    continue
                yield entry.name, (found.st_mtime_ns, found.st_ino)
    finally:
        os.close(root)


def _fresh(path: Path, stamp: tuple[int, int]) -> _Entry | None:
    try:
        return _Entry(stamp, _summarized(path))
    except (NotFound, FileNotFoundError):  # being made, or gone meanwhile
        return None
    except OSError as error:
        return _Entry(stamp, Row(name=path.name, state="damaged", error=str(error)))


def _summarized(path: Path) -> Row:
    from roost.operations.summary import summarize  # 40 ms of imports that a known package does not need

    return summarize(path)


def _index_path(folder: Path) -> Path:
    # Two folders of one number take turns, because an index names its folder.
    return cache_folder() / "ls" / f"{zlib.crc32(os.fsencode(folder)):08x}.json"


def _read(index: Path, folder: Path) -> dict[str, _Entry]:
    try:
        found = msgspec.json.decode(index.read_bytes(), type=_Index)
    except (OSError, msgspec.DecodeError):
        return {}
    return found.entries if found.format == _FORMAT and found.folder == os.fspath(folder) else {}


def _write(index: Path, content: _Index) -> None:
    from roost.base import durable

    try:
        for folder in reversed([index.parent, *index.parent.parents]):
            if not folder.is_dir():
                durable.make_folder(folder, exist_ok=True)
        durable.write(index, msgspec.json.encode(content))
    except (OSError, UnicodeEncodeError):
        return  # a full disk, a read-only home, a name that JSON cannot hold: the next look takes longer
