"""Where an archive is: a file, a web server, or a store that fsspec reads."""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from roost.base.errors import ConfigError, NotFound, RoostError
from roost.config.values import store_url

_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)
_LIBRARIES = {
    **{scheme: library.module for scheme, library in store_url.LIBRARIES.items()},
    "oci": "ocifs",
    "smb": "smbprotocol",
}
"""The library of a scheme of fsspec, as pip names it."""
_TIMEOUT_SECONDS = 60.0
_BLOCK_BYTES = 1 << 24
"""What fsspec reads at once: a store answers each request after some ten milliseconds."""


@dataclass(frozen=True, kw_only=True)
class ArchiveSource:
    """An archive that can be read."""

    location: str
    """The path or the URL."""
    shown: str
    """The same without credentials."""
    setting: str
    where: object | None
    path: Path | None = None
    """Of a file."""
    size: int | None = None
    identity: str | None = None
    """Of a file: place, size and time of change; equal as long as its bytes are the same."""

    @property
    def name(self) -> str:
        """The name of the file."""
        return self.shown.rstrip("/").rpartition("/")[2] or self.shown

    @property
    def is_of_option(self) -> bool:
        """Whether it was named by an option, which has no further settings."""
        return self.setting.startswith("--")

    @contextlib.contextmanager
    def open(self) -> Iterator[tuple[int | None, IO[bytes]]]:
        """Opens the archive; gives its size, if it is known, and its bytes.

        Raises:
            RoostError: It cannot be read, or a library is missing; here or while it is read.
        """
        if self.path is not None:
            with self.path.open("rb") as file:
                yield os.fstat(file.fileno()).st_size, file
        elif self._is_http:
            with self._opened_http() as opened:
                yield opened
        else:
            with self._opened_by_fsspec() as opened:
                yield opened

    def require_library(self) -> None:
        """Checks that a library is installed for the scheme of a URL. No server is asked.

        Raises:
            ConfigError: There is none, or the scheme is unknown.
        """
        if self.path is None and not self._is_http:
            with self._naming_library():
                import fsspec

                fsspec.get_filesystem_class(self._scheme)

    @property
    def _scheme(self) -> str:
        return urlsplit(self.location).scheme.lower()

    @property
    def _is_http(self) -> bool:
        return self._scheme in ("http", "https")

    @contextlib.contextmanager
    def _opened_http(self) -> Iterator[tuple[int | None, IO[bytes]]]:
        from roost.project import http_transfer  # httpx takes 0.25 s, most archives need none

        try:
            with http_transfer.opened(self.location, _TIMEOUT_SECONDS) as (size, pieces):
                yield size, io.BufferedReader(_PieceReader(pieces))
        except RoostError as error:
            if error.fix is not None or error.setting is not None:
                raise
            raise self.error(
                str(error), fix="look at the network and the address, and start it again"
            ) from None

    @contextlib.contextmanager
    def _opened_by_fsspec(self) -> Iterator[tuple[int | None, IO[bytes]]]:
        with self._naming_library():
            import fsspec

            system, path = fsspec.core.url_to_fs(self.location)
        try:
            with system.open(path=path, mode="rb", block_size=_BLOCK_BYTES) as file:
                yield getattr(file, "size", None), file
        except RoostError:
            raise
        except FileNotFoundError:
            raise self.missing() from None
        except Exception as error:  # each library has errors of its own
            if isinstance(error, OSError) and error.filename is not None and os.path.exists(error.filename):  # noqa: PTH110
                raise  # of the disk of the staging folder
            what = str(error).partition("\n")[0] or type(error).__name__
            raise self.error(what, fix="look at the address and at your credentials for it") from error

    @contextlib.contextmanager
    def _naming_library(self) -> Iterator[None]:
        """Names the library that the block misses."""
        try:
            yield
        except (ImportError, ValueError) as error:
            if isinstance(error, ValueError) and "Protocol not known" in str(error):
                stores = (f"{one}://" for one in ("s3", "gs", "az", "hf", "sftp"))
                raise ConfigError(
                    f"no library is known that reads {self._scheme}://",
                    setting=self.setting, received=self.shown, where=self.where,
                    fix=f"name one of: {', '.join(['a path', 'https://', *stores])}",
                ) from None  # fmt: skip
            raise self._missing_library(self._scheme, str(error).partition("\n")[0]) from None

    def error(self, what: str, *, fix: str) -> RoostError:
        """Returns the error of an archive that cannot be read."""
        return RoostError(
            f"the archive cannot be read: {what}",
            setting=self.setting, received=self.shown, where=self.where, fix=fix,
        )  # fmt: skip

    def missing(self) -> NotFound:
        """Returns the error of an archive that does not exist."""
        fix = "correct the path; mount its disk first (on Colab: drive.mount('/content/drive'))"
        return NotFound(
            "there is no such archive", setting=self.setting, received=self.shown, where=self.where, fix=fix
        )

    def _missing_library(self, scheme: str, reason: str) -> RoostError:
        library = _LIBRARIES.get(scheme)
        names = " ".join(dict.fromkeys(["fsspec", *([library] if library else [])]))
        more = "" if library else f" and what it names: {reason}"
        return ConfigError(
            f"reading {scheme}:// needs a library that is not installed",
            setting=self.setting, received=self.shown, where=self.where, fix=f"pip install {names}{more}",
        )  # fmt: skip


class _PieceReader(io.RawIOBase):
    """A stream of the pieces that an iterator gives."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._rest = pieces, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = memoryview(piece)
        count = min(len(buffer), len(self._rest))
        buffer[:count], self._rest = self._rest[:count], self._rest[count:]
        return count


def shown(location: str) -> str:
    """Returns a path or a URL without what may be a credential: user, password, query."""
    if not _SCHEME.match(location):
        return location
    parts = urlsplit(location)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def find(location: str, *, project: Path, setting: str, where: object | None) -> ArchiveSource:
    """Returns the archive at a path, relative to the project, or at a URL. A server is not asked yet.

    Raises:
        NotFound: There is no such file.
        ConfigError: It is a folder, a device or a pipe.
    """
    scheme = _SCHEME.match(location)
    if scheme and scheme[1].lower() != "file":
        return ArchiveSource(location=location, shown=shown(location), setting=setting, where=where)
    written = url2pathname(urlsplit(location).path) if scheme else os.path.expanduser(location)  # noqa: PTH111
    path = project / written
    found = ArchiveSource(location=location, shown=str(path), setting=setting, where=where, path=path)
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise found.missing() from None
    except OSError as error:
        fix = "look at the disk and at your permissions; mount it again"
        raise found.error(error.strerror or str(error), fix=fix) from error
    if path.is_dir():
        fix = "pack it: `tar cf data.tar -C FOLDER .`; or use the folder itself, without data.stage"
        raise ConfigError(
            "is a folder, not an archive", setting=setting, received=location, where=where, fix=fix
        )
    if not path.is_file():
        fix = "name a file, which can be read again"
        raise ConfigError(
            "is a device or a pipe, not an archive", setting=setting, received=location, where=where, fix=fix
        )
    identity = f"{path.resolve()}:{status.st_size}:{status.st_mtime_ns}"
    return ArchiveSource(
        location=location, shown=str(path), setting=setting, where=where, path=path, size=status.st_size,
        identity=identity,
    )  # fmt: skip
