"""Lists the files in a folder that every user may write to. Of each user a limited number of files counts,
however many the user creates, and under whichever names, so that one user cannot slow down the others."""

from __future__ import annotations

import os
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import NamedTuple

_NAME = re.compile(r"([0-9]{1,10})[-.].*")
_TOKEN_SEPARATOR = "-"
_SETTLED_NS = 10**9
"""A listing is kept only if the folder's last change is older than this: two changes may have one time."""
_MAX_FOLDERS, _MAX_USERS, _MAX_FOREIGN_NAMES = 64, 1024, 1 << 17


class _Listing(NamedTuple):
    changed: int
    names: list[str]


_listings: dict[tuple[int, int], _Listing] = {}
"""The counted names in folders that a user has filled, by device and inode: finding them takes a ``stat`` of
each file."""
_foreign_names: dict[tuple[int, int], set[str]] = {}
"""In the same folders, the names of files that the named user does not own. They stay foreign: a file keeps
its owner, and a name that contains a random token is not used a second time."""


def list_user_files(folder_fd: int, *, max_per_user: int, pattern: re.Pattern[str] = _NAME) -> list[str]:
    """Returns the names of the files that begin with a user's number, sorted. If there are very many, only
    files that the user owns count, and of each user the first ones.

    Args:
        folder_fd: A descriptor of the folder.
        max_per_user: The number of files that count of one user.
        pattern: Matches the names of the files; its first group is the user's number.

    Raises:
        OSError: The folder cannot be listed.
    """
    now, found = time.time_ns(), os.fstat(folder_fd)
    key = found.st_dev, found.st_ino
    before = _listings.get(key)
    if before is not None and before.changed == found.st_ctime_ns:
        return before.names
    _listings.pop(key, None)
    by_user: defaultdict[str, list[str]] = defaultdict(list)
    for name in os.listdir(folder_fd):
        if user := pattern.fullmatch(name):
            by_user[user[1]].append(name)
    if len(by_user) <= _MAX_USERS and all(len(some) <= max_per_user for some in by_user.values()):
        _foreign_names.pop(key, None)
        return sorted(name for some in by_user.values() for name in some)
    known = _foreign_names.pop(key, set())
    if len(_foreign_names) >= _MAX_FOLDERS:
        _listings.clear()
        _foreign_names.clear()
    foreign = _foreign_names[key] = {name for some in by_user.values() for name in some if name in known}
    own = (
        islice(_owned(folder_fd, sorted(some), user, foreign), max_per_user) for user, some in by_user.items()
    )
    names = sorted(name for some in own for name in some)
    if now - found.st_ctime_ns > _SETTLED_NS:
        _listings[key] = _Listing(found.st_ctime_ns, names)
    return names


def _owned(folder_fd: int, names: Iterable[str], user: str, foreign: set[str]) -> Iterator[str]:
    """The names of files that the user owns; the others are added to ``foreign``."""
    for name in names:
        if name in foreign:
            continue
        with suppress(OSError):  # removed meanwhile
            if os.stat(name, dir_fd=folder_fd, follow_symlinks=False).st_uid == int(user):
                yield name
            elif _TOKEN_SEPARATOR in name and len(foreign) < _MAX_FOREIGN_NAMES:
                foreign.add(name)
