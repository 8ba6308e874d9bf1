"""What users have put into a folder that each of them may write to: of one user no more than so many files
are looked at, however many lie there, and under whoever's name."""

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
"""A folder that was changed so long ago is as it was listed: two changes may bear the same time."""
_MAX_FOLDERS, _MAX_USERS, _MAX_FOREIGN_NAMES = 64, 1024, 1 << 17


class _Listing(NamedTuple):
    changed: int
    names: list[str]


_listings: dict[tuple[int, int], _Listing] = {}
"""Of folders that somebody has filled, what counted in them: to find that takes a look at each file."""
_foreign_names: dict[tuple[int, int], set[str]] = {}
"""Of the same folders, the names that are not of their users: whose a file is stays as it is, and nobody
makes another one of that name, where a token is part of it."""


def list_user_files(folder_fd: int, *, most: int, like: re.Pattern[str] = _NAME) -> list[str]:
    """The names of the files there that begin with the number of a user, sorted. Where there are very many,
    those alone that are that user's own, and of each user the first ones.

    Args:
        folder_fd: A descriptor of the folder.
        most: How many of one user.
        like: What they are called; its first group is the number.

    Raises:
        OSError: It cannot be listed.
    """
    now, found = time.time_ns(), os.fstat(folder_fd)
    place = found.st_dev, found.st_ino
    before = _listings.get(place)
    if before is not None and before.changed == found.st_ctime_ns:
        return before.names
    _listings.pop(place, None)
    by_user: defaultdict[str, list[str]] = defaultdict(list)
    for name in os.listdir(folder_fd):
        if user := like.fullmatch(name):
            by_user[user[1]].append(name)
    if len(by_user) <= _MAX_USERS and all(len(some) <= most for some in by_user.values()):
        _foreign_names.pop(place, None)
        return sorted(name for some in by_user.values() for name in some)
    known = _foreign_names.pop(place, set())
    if len(_foreign_names) >= _MAX_FOLDERS:
        _listings.clear()
        _foreign_names.clear()
    strangers = _foreign_names[place] = {name for some in by_user.values() for name in some if name in known}
    own = (islice(_owned(folder_fd, sorted(some), user, strangers), most) for user, some in by_user.items())
    names = sorted(name for some in own for name in some)
    if now - found.st_ctime_ns > _SETTLED_NS:
        _listings[place] = _Listing(found.st_ctime_ns, names)
    return names


def _owned(folder_fd: int, names: Iterable[str], user: str, strangers: set[str]) -> Iterator[str]:
    """Those that are the user's; what is not is added to ``strangers``."""
    for name in names:
        if name in strangers:
            continue
        with suppress(OSError):  # gone meanwhile
            if os.stat(name, dir_fd=folder_fd, follow_symlinks=False).st_uid == int(user):
                yield name
            elif _TOKEN_SEPARATOR in name and len(strangers) < _MAX_FOREIGN_NAMES:
                strangers.add(name)
