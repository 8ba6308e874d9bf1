"""The files of a run: listing and reading below its folder; no link is followed, only regular files are
read."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from roost.base import safe_read
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
    """Opens one file.

    Raises:
        NotFound: There is no such regular file below the folder.
    """
    if "\\" in path:
        raise _no_such_file(path)
    try:
        return FileContent(safe_read.open_inside(root, path), path.rpartition("/")[2])
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENXIO):
            raise _no_such_file(path) from None
        raise


def _no_such_file(path: str) -> NotFound:
    return NotFound("the run has no such file", received=path)


def _file_kind(mode: int) -> str:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "folder"
    return "link" if stat.S_ISLNK(mode) else "other"
