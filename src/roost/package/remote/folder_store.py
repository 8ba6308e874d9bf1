"""A store in a folder: a disk, a network share, a mounted drive."""

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

        def write() -> None:
            durable.make_folders(path.parent)
            try:
                durable.write(path, data)
            except OSError as error:
                if error.errno not in _NO_SYNC or not path.is_file():
                    raise  # else the file is there; whether its bytes are right is seen when it is read again

        self._call(f"cannot write {short_name(name)}", write)

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


def _files(folder: Path) -> dict[str, int]:
    with os.scandir(folder) as entries:
        return {
            entry.name: entry.stat().st_size
            for entry in entries
            if not durable.is_staging(entry.name) and entry.is_file()
        }


def _folders(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
