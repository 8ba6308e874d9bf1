"""The labels of a package, which a person gives and changes at any time: tags, a note, a star.

::

    {"format": 1, "tags": ["baseline", "lr-study"], "note": "with the new sampler", "starred": true}

They are one small file at the top of the package, also while its run trains. No seal covers it, and no
session reads it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from roost.base import durable, safe_read
from roost.base.errors import Refused, UsageError

NAME = "_labels.json"
FORMAT = 1
MAX_TAGS = 100
MAX_NOTE_BYTES = 64 * 2**10
_MAX_TAG_CHARACTERS = 64
_TAG = re.compile(rf"[\w./:+-]{{1,{_MAX_TAG_CHARACTERS}}}")
_MAX_BYTES = 1 << 20
_LOCK_SECONDS = 10.0
"""A change takes milliseconds: a process that holds the lock for longer is stopped, or hangs."""
_MAX_TRIES = 100
"""How often a write begins again, because another process has replaced or removed the file meanwhile."""


class Labels(msgspec.Struct, frozen=True, kw_only=True):
    """The tags of a package, in the order in which they were added; its note; whether it is starred."""

    tags: list[str] = []
    note: str | None = None
    starred: bool = False


def checked_tag(tag: str) -> str:
    """Returns the tag unchanged.

    Raises:
        UsageError: It is not a tag.
    """
    if _TAG.fullmatch(tag) is None or tag.startswith(("-", "+")) or not tag.isprintable():
        fix = (
            f"give 1 to {_MAX_TAG_CHARACTERS} letters, digits and '-', '_', '.', '/', ':', '+'; a letter, a "
            "digit or '_' first"
        )
        raise UsageError("is not a tag", received=tag, fix=fix)
    return tag


def read(package: Path) -> Labels:
    """Returns the labels of a package. What is not as roost writes it counts as not there: labels are not
    worth an error in a list of runs."""
    try:
        found = json.loads(safe_read.read(package / NAME, max_bytes=_MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return Labels()
    return _from_json(found)


def update(package: Path, change: Callable[[Labels], Labels]) -> Labels:
    """Changes the labels of a package, and returns the new ones. Of several processes that do so at the same
    time, each begins with what the one before has written.

    Args:
        package: The package.
        change: Returns the new labels for the present ones.

    Raises:
        UsageError: The new labels have a tag that is none, too many tags, or too long a note.
        Refused: The file with the labels is not as this version of roost writes it, or another process holds
            its lock.
        OSError: The file cannot be written; the labels are unchanged.
    """
    for _ in range(_MAX_TRIES):
        with contextlib.suppress(_Replaced), _locked(package) as present:
            labels = _checked(change(_to_change(package, present)))
            body = {"format": FORMAT, **msgspec.to_builtins(labels)}
            try:
                durable.write(package / NAME, json.dumps(body, ensure_ascii=False).encode() + b"\n")
            except FileNotFoundError:
                if not package.is_dir():
                    raise
                continue  # a session that begins has swept the unfinished file
            renew_stamp(package / "sessions")
            return labels
    raise Refused("other processes change the labels all the time", where=package, fix="try again")


def add_tags(package: Path, tags: Iterable[str]) -> Labels:
    """Adds tags to a package; raises the errors of `update`."""
    return update(
        package, lambda old: msgspec.structs.replace(old, tags=list(dict.fromkeys([*old.tags, *tags])))
    )


def remove_tags(package: Path, tags: Iterable[str]) -> Labels:
    """Removes tags from a package, whether or not it has them; raises the errors of `update`."""
    gone = set(tags)
    return update(
        package,
        lambda old: msgspec.structs.replace(old, tags=[one for one in old.tags if one not in gone]),
    )


def set_note(package: Path, note: str | None) -> Labels:
    """Replaces the note of a package; None removes it. Raises the errors of `update`."""
    return update(package, lambda old: msgspec.structs.replace(old, note=note or None))


def set_starred(package: Path, starred: bool) -> Labels:
    """Stars a package, or removes the star. Raises the errors of `update`."""
    return update(package, lambda old: msgspec.structs.replace(old, starred=starred))


class _Replaced(Exception):
    """Another process has replaced the file between its opening and its lock."""


@contextmanager
def _locked(package: Path) -> Iterator[bytes]:
    """Gives the content of the file, empty if it is new, and holds its lock."""
    path = package / NAME
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        fd = os.open(path, flags, 0o644)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            raise
        raise _foreign_error(package) from None
    try:
        own = os.fstat(fd)
        if not stat.S_ISREG(own.st_mode):
            raise _foreign_error(package)
        if not safe_read.try_lock(fd, _LOCK_SECONDS):
            fix = f"`fuser {NAME}` in the package names that process"
            raise Refused("another process holds the lock of its labels", where=package, fix=fix)
        try:
            now = os.lstat(path)
        except FileNotFoundError:
            raise _Replaced from None
        if (own.st_ino, own.st_dev) != (now.st_ino, now.st_dev):
            raise _Replaced
        yield os.pread(fd, _MAX_BYTES, 0)
    finally:
        os.close(fd)


def _to_change(package: Path, present: bytes) -> Labels:
    """Returns the present labels; refuses those of which a part would be lost.

    Raises:
        Refused: A newer roost, or another program, has written the file.
    """
    if not present:
        return Labels()
    try:
        found = json.loads(present)
        is_own = found["format"] == FORMAT and found.keys() <= {"format", "tags", "note", "starred"}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        is_own = False
    labels = _from_json(found)
    if not is_own or msgspec.to_builtins(labels) != {
        **msgspec.to_builtins(Labels()),
        **_without_format(found),
    }:
        raise _foreign_error(package)
    return labels


def _without_format(found: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name != "format"}


def _foreign_error(package: Path) -> Refused:
    fix = "rename the file, which loses the labels in it, or use the roost that wrote it"
    return Refused(f"this version of roost did not write its {NAME}", where=package, fix=fix)


def _from_json(found: Any) -> Labels:
    if not isinstance(found, dict):
        return Labels()
    tags, note = found.get("tags"), found.get("note")
    texts = [one for one in tags if isinstance(one, str)] if isinstance(tags, list) else []
    valid = [one for one in dict.fromkeys(texts) if _TAG.fullmatch(one) and one.isprintable()]
    text = note.encode(errors="replace")[:MAX_NOTE_BYTES] if isinstance(note, str) else b""
    return Labels(
        tags=valid[:MAX_TAGS],
        note=text.decode(errors="ignore") or None,
        starred=found.get("starred") is True,
    )


def _checked(labels: Labels) -> Labels:
    for tag in labels.tags:
        checked_tag(tag)
    if len(labels.tags) > MAX_TAGS:
        fix = f"a package has at most {MAX_TAGS}: remove some first"
        raise UsageError("these are too many tags", received=len(labels.tags), fix=fix)
    if labels.note is not None:
        try:
            size = len(labels.note.encode())
        except UnicodeEncodeError:
            fix = "write it as UTF-8"
            raise UsageError("the note is no text", received=ascii(labels.note)[:40], fix=fix) from None
        if size > MAX_NOTE_BYTES:
            fix = f"give at most {MAX_NOTE_BYTES:,} bytes; longer texts are files of the project"
            raise UsageError("the note is too long", received=f"{size:,} bytes", fix=fix)
    return labels


def renew_stamp(sessions: Path) -> None:
    """Changes the time of the folder by which the index of `roost ls` notices a change. It is a later time
    than before in any case: two changes within a tick of the kernel's clock are two."""
    with contextlib.suppress(OSError):  # a damaged package, or one of another user, who wrote to it by group
        now = max(time.time_ns(), os.stat(sessions).st_mtime_ns + 1)  # noqa: PTH116
        os.utime(sessions, ns=(now, now))
