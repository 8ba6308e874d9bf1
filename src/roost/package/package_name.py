"""How a package's folder is called. Nothing is ever overwritten: a taken name gets a suffix."""

# Not durable: an atomic mkdir is how a name is taken

from __future__ import annotations

import os
import re
import shlex
import time
from pathlib import Path

from roost.base.errors import Refused, UsageError

_MAX_BYTES = 120
_MAX_TRIES = 1_000_000
_TIME_NAME = re.compile(r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d_\d{3}")


def time_name(now: float) -> str:
    """``2026-11-20_07-33-13_481``: local time with milliseconds, for a Unix time in seconds."""
    return time.strftime("%Y-%m-%d_%H-%M-%S", time.localtime(now)) + f"_{int(now * 1000) % 1000:03d}"


def is_time_name(name: str) -> bool:
    """Whether it is one of `time_name`, also with the suffix of one that was taken: nobody has chosen it."""
    return _TIME_NAME.match(name) is not None


def folder_name(description: str) -> str:
    """A description as a folder's name: path separators and control characters become ``_``.

    Raises:
        UsageError: Nothing of it is left.
    """
    name = _cleaned(description)
    if not name:
        raise UsageError(
            "the description makes no folder name", received=description, fix="write a word or two"
        )
    return name


def _cleaned(text: str) -> str:
    """Empty when nothing is left but dots and dashes."""
    # Lone surrogates are how Python hands over the bytes of a command line that are no UTF-8.
    name = re.sub(r"[/\\\x00-\x1f\x7f-\x9f\ud800-\udfff]", "_", text).strip()
    name = name.encode()[:_MAX_BYTES].decode(errors="ignore").strip()
    if not name.strip("._-"):
        return ""
    return f"_{name}" if name[0] in ".-" else name


def checked_name(name: str, *, setting: str = "--name") -> str:
    """The name itself.

    Raises:
        UsageError: It is no plain folder name.
    """
    if not name or _cleaned(name) != name:
        raise UsageError(
            "is no folder name",
            setting=setting,
            received=name,
            fix="use letters, digits, '-', '_', '.' and no '/'; do not begin with '.' or '-'",
        )
    return name


def _entry_names(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries]


def name_taken_error(root: Path, name: str) -> Refused:
    """Why a name that was asked for is not to be had."""
    fix = f"choose another name, or go on with it: roost submit continue {shlex.quote(str(root / name))}"
    return Refused("there is a package of this name", setting="--name", received=name, where=root, fix=fix)


def make_exactly(root: Path, name: str) -> Path:
    """Makes ``root/name``. Of many processes that want it at the same time one has it.

    Raises:
        Refused: It stands.
        OSError: The folder cannot be made.
    """
    folder = root / name
    try:
        folder.mkdir()
    except FileExistsError:
        raise name_taken_error(root, name) from None
    return folder


def make_unique(root: Path, name: str) -> Path:
    """Makes ``root/name``, or ``root/name-2``, ``-3`` … when that is taken. Safe among many processes:
    making a folder is atomic.

    Raises:
        OSError: The folder cannot be made.
    """
    taken = re.compile(re.escape(name) + r"-(\d+)")
    number = 1
    for _ in range(_MAX_TRIES):
        folder = root / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir()
            return folder
        except FileExistsError:
            # One look at the folder instead of trying every number: a thousand of one name stay quick.
            numbers = [int(m[1]) for m in map(taken.fullmatch, _entry_names(root)) if m]
            number = max([number, *numbers]) + 1
    raise FileExistsError(f"no free name beside {root / name}")
