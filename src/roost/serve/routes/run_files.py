"""The files of a run: listed and read below its folder, through no link and nothing but plain files."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from roost.base.errors import NotFound
from roost.operations.responses import Entry
from roost.serve.http.error_response import Answered
from roost.serve.http.route import Asked, Content

_MOST_LISTED = 10_000


class Named(Asked, frozen=True, kw_only=True):
    """One file of a run."""

    run: Annotated[str, Meta(pattern=r"^[0-9a-f]{8}-[0-9a-f]{16}$")]
    path: Annotated[str, Meta(min_length=1, max_length=4096)]


def listed(root: Path) -> list[Entry]:
    """Everything below a folder, by name; links are named and not followed.

    Raises:
        Answered: 413; there are too many.
    """
    found: list[Entry] = []
    for folder, names, files in os.walk(root):
        for name in sorted([*names, *files]):
            path = Path(folder, name)
            try:
                about = path.lstat()
            except FileNotFoundError:  # a run writes and removes all the time
                continue
            shown = os.fsencode(path.relative_to(root)).decode("utf-8", "replace")
            found.append(Entry(shown, _kind(about.st_mode), about.st_size, about.st_mtime))
            if len(found) > _MOST_LISTED:
                raise Answered(413, "too_large", f"it has more than {_MOST_LISTED} files")
    return sorted(found, key=lambda one: one.path)


def opened(root: Path, path: str) -> Content:
    """One file. Each folder on the way is opened from the one before, so nobody can put a link in between.

    Raises:
        NotFound: There is none, or it is no plain file below the folder.
    """
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts) or "\\" in path:
        raise _none(path)
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
            raise _none(path) from None
        raise
    finally:
        os.close(fd)
    if not stat.S_ISREG(os.fstat(found).st_mode):
        os.close(found)
        raise _none(path)
    return Content(found, parts[-1])


def _none(path: str) -> NotFound:
    return NotFound("the run has no such file", received=path)


def _kind(mode: int) -> str:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "folder"
    return "link" if stat.S_ISLNK(mode) else "other"
