"""A store in a folder: a disk, a network share, a mounted drive.

The folder of all copies has the file ``.roost-store`` with an id. A drive that is not mounted leaves a folder
that can be written to as well; without the file it is not taken for the store in which a copy was before.
"""

# Not durable: deletes objects that nothing refers to

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from roost.base import durable, safe_read
from roost.config.values.store_url import StoreUrl
from roost.package.remote.store import MAX_GET_BYTES, ObjectMissing, StoreError, short_name

T = TypeVar("T")
MARKER = ".roost-store"
_MARKER_BYTES = 64
_NO_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS)
"""What a mounted drive answers that cannot sync a folder."""

_NO_ROOM = "make room in the store, or set a smaller remote.keep"
_NO_ACCESS = "check that this user may read, write and delete there"
_FIXES = {
    errno.ENOSPC: _NO_ROOM,
    errno.EDQUOT: _NO_ROOM,
    errno.EACCES: _NO_ACCESS,
    errno.EPERM: _NO_ACCESS,
    errno.EROFS: _NO_ACCESS,
    errno.ENOTDIR: "name a folder, or a path at which one can be made",
}


class FolderStore:
    """The store in a folder."""

    num_parallel = 1

    def __init__(self, url: StoreUrl) -> None:
        self.url = url
        self._root = Path(url.rest)

    def put(self, name: str, data: bytes | memoryview) -> None:
        """See `Store.put`."""
        path = self._place(name)
        self._write(path, data, f"cannot write {short_name(name)}")

    def _write(self, path: Path, data: bytes | memoryview, what: str) -> None:
        def write() -> None:
            # The folder of all copies is made with its marker only: the drive may be unmounted by now.
            durable.make_folders(path.parent, below=self._root.parent)
            try:
                durable.write(path, data)
            except OSError as error:
                if error.errno not in _NO_SYNC or not path.is_file():
                    raise  # else the file is there; whether its bytes are right is seen when it is read again

        self._call(what, write)

    def get(self, name: str) -> bytes:
        """See `Store.get`."""
        try:
            with open(safe_read.open_fd(self._root / name), "rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size > MAX_GET_BYTES:
                    raise OSError(errno.EFBIG, f"has {size} bytes, more than {MAX_GET_BYTES}")
                return file.read(size)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise ObjectMissing(f"{self.url.text} has no {name}") from error
        except OSError as error:
            raise self._error(f"cannot read {short_name(name)}", error) from error

    def sizes(self, folder: str) -> dict[str, int]:
        """See `Store.sizes`."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return self._call(f"cannot list {folder}", lambda: _files(self._root / folder), missing=True)
        return {}

    def folders(self) -> list[str]:
        """See `Store.folders`."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return self._call("cannot be listed", lambda: _folders(self._root), missing=True)
        return []

    def delete(self, name: str) -> None:
        """See `Store.delete`."""
        path = self._place(name)
        self._call(f"cannot delete {short_name(name)}", lambda: path.unlink(missing_ok=True))

    def sweep(self, folder: str) -> None:
        """Removes what puts that were killed have left in a folder."""
        with contextlib.suppress(OSError):
            for entry in (self._root / folder).iterdir():
                if durable.is_staging(entry.name):
                    durable.discard_abandoned(entry.with_name(entry.name[1:].rpartition(".tmp-")[0]))

    def require_marker(self, known: str | None, *, has_copy: bool) -> str:
        """Makes sure that the folder of all copies, above this one, is the store in which the copy was.
        Returns the id in its marker, which is made in a new store.

        Args:
            known: The id before; None: there was no copy.
            has_copy: Whether the copy is there, so that it is the same store whatever the marker has.

        Raises:
            StoreError: It is another folder.
        """
        folder = self._root.parent
        found = self._call("cannot be read", lambda: _marker(folder / MARKER))
        if not has_copy and known is not None and found not in (known, ""):
            what = "has no" if found is None else "has another"
            raise StoreError(
                f"{folder} {what} {MARKER}, and not the copy that was there: a drive may not be mounted",
                fix=f"mount it; if the folder was emptied on purpose: touch {folder / MARKER}",
            )
        if not found:
            found = known or os.urandom(8).hex()
            self._call("cannot be made", lambda: durable.make_folders(folder))
            self._write(folder / MARKER, found.encode(), f"cannot write {MARKER}")
        return found

    def _place(self, name: str) -> Path:
        """Returns where an object is written or deleted. Raises StoreError."""
        path = self._root / name
        if path.parent != self._root and path.parent.is_symlink():
            raise StoreError(
                f"{self.url.text}: its folder {path.parent.name} is a link, which may lead anywhere",
                fix="put the folder in its place; the URL itself may have links",
            )
        return path

    def _call(self, what: str, call: Callable[[], T], *, missing: bool = False) -> T:
        try:
            return call()
        except (FileNotFoundError, NotADirectoryError) as error:
            if missing:
                raise
            raise self._error(what, error) from error
        except OSError as error:
            raise self._error(what, error) from error

    def _error(self, what: str, error: OSError) -> StoreError:
        fix = _FIXES.get(error.errno) if error.errno is not None else None
        return StoreError(f"{self.url.text} {what}: {error.strerror or error}", fix=fix)


def _marker(path: Path) -> str | None:
    try:
        return bytes(safe_read.read(path, max_bytes=_MARKER_BYTES)).decode(errors="replace").strip()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _files(folder: Path) -> dict[str, int]:
    found: dict[str, int] = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):  # deleted meanwhile: the rest of the folder is there
                if not durable.is_staging(entry.name) and entry.is_file():
                    found[entry.name] = entry.stat().st_size
    return found


def _folders(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
