"""The files of a run: listing and reading below its folder; no link is followed, only regular files are
read."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from roost.base.errors import NotFound
from roost.operations.responses import FileEntry
from roost.serve.http.error_response import HttpError
from roost.serve.http.route import FileContent, RequestParameters

_MAX_FILES = 10_000


class ReadFile(RequestParameters, frozen=True, kw_only=True):
    """A file of a run, to be read."""

    run: Annotated[str, Meta(pattern=r"^[0-9a-f]{8}-[0-9a-f]{16}$")]
    path: Annotated[str, Meta(min_length=1, max_length=4096)]


def list_files(root: Path) -> list[FileEntry]:
    """Returns everything below a folder, by name; links are listed and not followed.

    Raises:
        HttpError: 413; there are more than 10,000.
    """
    found: list[FileEntry] = []
    for folder, names, files in os.walk(root):
        for name in sorted([*names, *files]):
            path = Path(folder, name)
            try:
                about = path.lstat()
            except FileNotFoundError:  # the run may remove files meanwhile
                continue
            shown = os.fsencode(path.relative_to(root)).decode("utf-8", "replace")
            found.append(FileEntry(shown, _file_kind(about.st_mode), about.st_size, about.st_mtime))
            if len(found) > _MAX_FILES:
                raise HttpError(413, "too_large", f"the run has more than {_MAX_FILES} files")
    return sorted(found, key=lambda one: one.path)


def open_file(root: Path, path: str) -> FileContent:
    """Opens one file. Each folder of the path is opened relative to the one before, so that no process can
    put a link in between.

    Raises:
        NotFound: There is no such regular file below the folder.
    """
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts) or "\\" in path:
        raise _no_such_file(path)
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts[:-1]:
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
            os.close(fd)
            fd = inner
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        found = os.open(parts[-1], flags, dir_fd=fd)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENXIO):
            raise _no_such_file(path) from None
        raise
    finally:
        os.close(fd)
    if not stat.S_ISREG(os.fstat(found).st_mode):
        os.close(found)
        raise _no_such_file(path)
    return FileContent(found, parts[-1])


def _no_such_file(path: str) -> NotFound:
    return NotFound("the run has no such file", received=path)


def _file_kind(mode: int) -> str:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "folder"
    return "link" if stat.S_ISLNK(mode) else "other"
