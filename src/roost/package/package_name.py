"""Names of package folders, and of numbered folders inside them. Nothing is ever overwritten: a name that
exists gets a suffix, or the next number."""

# Not durable: a name is taken by an atomic mkdir or rename

from __future__ import annotations

import fcntl
import os
import re
import shlex
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from roost.base import durable
from roost.base.errors import Refused, UsageError

NO_SAVE = "NOSAVE"
"""The name of a trial that can be deleted."""
TRASH = ".trash"
"""The folder of removed packages, beside the others."""
_MAX_BYTES = 120
_MAX_TRIES = 1_000_000
_TIME_NAME = re.compile(r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d_\d{3}")


def time_name(now: float) -> str:
    """Returns a name such as ``2026-11-20_07-33-13_481``: local time with milliseconds, of a Unix time in
    seconds."""
    return time.strftime("%Y-%m-%d_%H-%M-%S", time.localtime(now)) + f"_{int(now * 1000) % 1000:03d}"


def is_time_name(name: str) -> bool:
    """Whether a name comes from `time_name`, possibly with a suffix, so that no user has chosen it."""
    return _TIME_NAME.match(name) is not None


def numbers(root: Path) -> list[int]:
    """Returns the numbers of the folders in ``root``, ascending; none if there is no such folder."""
    if not root.is_dir():
        return []
    with os.scandir(root) as entries:
        return sorted(int(entry.name) for entry in entries if entry.name.isdecimal())


def make_numbered(root: Path) -> Path:
    """Creates the next folder in ``root``, which is created, too, and returns it. Safe with concurrent
    processes: creating a folder is atomic.

    Raises:
        OSError: The folder cannot be created.
    """
    durable.make_folders(root)
    number = 0
    while True:
        number = max([number, *numbers(root)]) + 1
        try:
            durable.make_folder(root / str(number))
            return root / str(number)
        except FileExistsError:
            continue  # another process has created it first


def folder_name(description: str) -> str:
    """Returns a description as a folder's name: path separators and control characters become ``_``.

    Raises:
        UsageError: The name would be empty.
    """
    name = _cleaned(description)
    if not name:
        raise UsageError(
            "the description cannot be used as a folder name", received=description, fix="write a word or two"
        )
    return name


def _cleaned(text: str) -> str:
    """The text without characters that a folder name must not have; empty if only dots and dashes are
    left."""
    # Python represents bytes of a command line that are not UTF-8 as lone surrogates.
    name = re.sub(r"[/\\\x00-\x1f\x7f-\x9f\ud800-\udfff]", "_", text).strip()
    name = name.encode()[:_MAX_BYTES].decode(errors="ignore").strip()
    if not name.strip("._-"):
        return ""
    return f"_{name}" if name[0] in ".-" else name


def checked_name(name: str, *, setting: str = "--name") -> str:
    """Returns the name unchanged.

    Raises:
        UsageError: It is not a plain folder name.
    """
    if not name or _cleaned(name) != name:
        raise UsageError(
            "not a valid folder name",
            setting=setting,
            received=name,
            fix="use letters, digits, '-', '_', '.' and no '/'; do not begin with '.' or '-'",
        )
    return name


def _entry_names(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries]


def name_taken_error(root: Path, name: str) -> Refused:
    """Returns the error for a requested name that exists."""
    command = f"roost submit continue {shlex.quote(str(root / name))}"
    fix = f"choose another name, or continue that package: {command}"
    return Refused("a package of this name exists", setting="--name", received=name, where=root, fix=fix)


@contextmanager
def staged(
    root: Path, name: str, *, taken: Callable[[Path, str], Refused] = name_taken_error
) -> Iterator[Path]:
    """Yields a staging folder, which becomes ``root/name`` at the end of the context: a program killed before
    leaves the name free. What such programs left of this name is removed. Of several processes that try at
    the same time, one succeeds.

    Raises:
        Refused: The name exists; the error is that of ``taken``.
        OSError: The folder cannot be created.
        Exception: Any error of the context; the staging folder is removed.
    """
    folder = root / name
    if os.path.lexists(folder):
        raise taken(root, name)
    for left in _entry_names(root):
        if durable.is_staging(left) and left.startswith(f".{name}.tmp-"):
            with suppress(OSError), _locked(root / left):
                shutil.rmtree(root / left, ignore_errors=True)
    made = durable.make_staging_folder(folder)
    try:
        with _locked(made):
            yield made
            durable.commit_folder(made, folder)
    except BaseException as error:
        shutil.rmtree(made, ignore_errors=True)
        if os.path.lexists(folder) and isinstance(error, OSError):
            raise taken(root, name) from None  # another process has been faster
        raise


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Locks a folder; raises BlockingIOError if another process has locked it."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(fd)


@contextmanager
def unique(root: Path, name: str) -> Iterator[Path]:
    """Yields a new folder, as `make_unique` names it; an error of the context removes it."""
    made = make_unique(root, name)
    try:
        yield made
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


def make_unique(root: Path, name: str) -> Path:
    """Creates ``root/name``, or ``root/name-2``, ``-3`` … if that exists. Safe among several processes,
    because creating a folder is atomic.

    Raises:
        OSError: The folder cannot be created.
    """
    taken = re.compile(re.escape(name) + r"-(\d+)")
    number = 1
    for _ in range(_MAX_TRIES):
        folder = root / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir()
            return folder
        except FileExistsError:
            # One listing of the folder instead of trying every number: fast also for a thousand of one name.
            numbers = [int(m[1]) for m in map(taken.fullmatch, _entry_names(root)) if m]
            number = max([number, *numbers]) + 1
    raise FileExistsError(f"no free name after {root / name}")


def requested_name(
    name: str | None, description: str | None, *, no_save: bool, use_description: bool
) -> str | None:
    """Returns the name of a new package as the options ``--name``, ``-ns`` and ``-sd`` request it; None: the
    time.

    Raises:
        UsageError: Options contradict each other, or the name is no valid folder name.
    """
    if name is not None:
        if no_save or use_description:
            raise UsageError("--name gives the name already", fix="leave out -ns and -sd")
        return checked_name(name)
    if no_save:
        return NO_SAVE
    if not use_description:
        return None
    if not description:
        raise UsageError("-sd names the package by its description, which is missing", fix="add -d TEXT")
    return folder_name(description)
