"""A store that fsspec can reach: S3, Google Cloud Storage, Azure, Hugging Face; by `sftp_store` also SFTP.

fsspec and the library of the scheme are imported when a store is opened. Credentials come from where these
libraries look for them, never from roost.
"""

# Not durable: the store of another machine, whose objects are read again

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from roost.config.values.store_url import LIBRARIES, StoreLibrary, StoreUrl
from roost.package.remote.store import ObjectMissing, StoreError, clean_reason, missing_library, short_name

T = TypeVar("T")
CONNECT_SECONDS = 20
READ_SECONDS = 60
"""No byte for this long is a failure, however long an object takes as a whole."""
_PARALLEL = 4
_RETRIES = 2


class FsspecStore:
    """A store by fsspec.

    Args:
        url: The place.

    Raises:
        NotFound: fsspec or the library of the scheme is not installed.
        StoreError: The connection cannot be made.
    """

    def __init__(self, url: StoreUrl) -> None:
        self.url = url
        library = LIBRARIES[url.scheme]
        fsspec = _imported("fsspec", url, StoreLibrary("fsspec", library.extra))
        _imported(library.module, url, library)
        self._fsspec, self._lock = fsspec, threading.Lock()
        self._made: set[str] = set()
        fs, self._root = self._connect(is_first=True)
        self._connected: tuple[Any, str] | None = (fs, self._root)
        self.num_parallel = _PARALLEL if getattr(fs, "async_impl", False) else 1

    def _connect(self, *, is_first: bool) -> tuple[Any, str]:
        """Returns the file system and the path in it. Stores of one service share a first connection."""
        try:
            fs, root = self._open(skip_instance_cache=not is_first)
        except Exception as error:
            raise self._error("cannot be reached", error) from error
        if hasattr(fs, "retries"):  # of s3fs; the caller tries again, too, and says so
            fs.retries = _RETRIES
        return fs, root

    def _open(self, *, skip_instance_cache: bool) -> tuple[Any, str]:
        """As `_connect`. May raise anything."""
        options = _options(self.url.scheme)
        fs, root = self._fsspec.core.url_to_fs(
            self.url.text, skip_instance_cache=skip_instance_cache, **options
        )
        return fs, str(root)

    def _close(self, fs: Any) -> None:
        """Ends a connection that has failed; connections by HTTP end by themselves."""

    def _write(self, fs: Any, path: str, data: bytes | memoryview) -> None:
        fs.pipe_file(path, bytes(data))

    def _read(self, fs: Any, path: str) -> bytes:
        return bytes(fs.cat_file(path))

    @property
    def _fs(self) -> Any:
        """The file system, connected again after a failure: the connection may be dead, and credentials may
        have been renewed."""
        with self._lock:
            if self._connected is None:
                self._connected = self._connect(is_first=False)
            return self._connected[0]

    def put(self, name: str, data: bytes | memoryview) -> None:
        """See `Store.put`."""
        path = self._path(name)

        def write() -> None:
            folder = path.rpartition("/")[0]
            if self.num_parallel == 1 and folder not in self._made:  # a store of folders
                self._fs.makedirs(folder, exist_ok=True)
                self._made.add(folder)
            self._write(self._fs, path, data)

        self._call(f"cannot write {short_name(name)}", write)

    def get(self, name: str) -> bytes:
        """See `Store.get`."""
        what = f"cannot read {short_name(name)}"
        return self._call(what, lambda: self._read(self._fs, self._path(name)), name)

    def sizes(self, folder: str) -> dict[str, int]:
        """See `Store.sizes`."""
        found = self._entries(folder)
        return {_last(one["name"]): int(one["size"] or 0) for one in found if one["type"] == "file"}

    def folders(self) -> list[str]:
        """See `Store.folders`."""
        found = self._entries("")
        return sorted(_last(one["name"]) for one in found if one["type"] == "directory")

    def _entries(self, folder: str) -> list[dict[str, Any]]:
        path = self._path(folder) if folder else self._root

        def entries() -> list[dict[str, Any]]:
            self._fs.invalidate_cache()
            try:
                found: list[dict[str, Any]] = self._fs.ls(path, detail=True)
            except FileNotFoundError:
                return []
            return [one for one in found if one["name"].strip("/") != path.strip("/")]

        return self._call(f"cannot list {folder}".rstrip(), entries)

    def delete(self, name: str) -> None:
        """See `Store.delete`."""

        def remove() -> None:
            try:
                self._fs.rm_file(self._path(name))
            except FileNotFoundError:
                return

        self._call(f"cannot delete {short_name(name)}", remove)

    def _path(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"

    def _call(self, what: str, call: Callable[[], T], name: str | None = None) -> T:
        """Calls the library, whose errors may be of any class."""
        before = self._connected
        try:
            return call()
        except StoreError:
            raise
        except FileNotFoundError as error:
            self._made.clear()  # the folders may have been removed
            if name is not None:
                raise ObjectMissing(f"{self.url.text} has no {name}") from error
            raise self._error(what, error) from error
        except Exception as error:
            with self._lock:
                is_first = self._connected is before  # else another thread has connected again already
                if is_first:
                    self._connected = None
            if is_first and before is not None:
                self._close(before[0])
            raise self._error(what, error) from error

    def _error(self, what: str, error: Exception) -> StoreError:
        return StoreError(f"{self.url.text} {what}: {clean_reason(error)}", fix=_fix(error))


def _imported(module: str, url: StoreUrl, library: StoreLibrary) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise missing_library(url.scheme, library.module, library.extra) from error


def _options(scheme: str) -> dict[str, Any]:
    """The options of a file system: no wait without an end. That of Azure has these limits already."""
    if scheme in ("s3", "s3a"):
        retries = {"max_attempts": 2, "mode": "standard"}
        timeouts = {"connect_timeout": CONNECT_SECONDS, "read_timeout": READ_SECONDS}
        return {"config_kwargs": {**timeouts, "retries": retries}, "use_listings_cache": False}
    if scheme in ("gs", "gcs"):
        from aiohttp import ClientTimeout

        limit = ClientTimeout(sock_connect=CONNECT_SECONDS, sock_read=READ_SECONDS)
        return {"requests_timeout": limit, "use_listings_cache": False}
    return {"use_listings_cache": False}


_FIXES = (
    ("container does not exist", "make the container first: roost makes none"),
    ("bucket does not exist", "make the bucket first: roost makes none"),
    ("expired", "log in again, or renew the credentials of this machine"),
    ("skew", "set the clock of this machine (its time differs from that of the store)"),
    ("difference between the request time", "set the clock of this machine (it differs from the store's)"),
    ("credentials", "give credentials by environment variables, the service's files, or a profile"),
    ("forbidden", "check that these credentials may read, write and delete there"),
    ("denied", "check that these credentials may read, write and delete there"),
    ("no space", "make room in the store, or set a smaller remote.keep"),
    ("insufficient storage", "make room in the store, or set a smaller remote.keep"),
)


def _fix(error: Exception) -> str | None:
    text = f"{type(error).__name__} {error}".lower()
    return next((fix for sign, fix in _FIXES if sign in text), None)


def _last(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]
