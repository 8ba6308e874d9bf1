"""``rm``, ``restore``, ``gc``: packages that were removed, until they are restored or deleted.

::

    runs/.trash/20261124T041356.481Z_NAME    a removed package: the UTC time of its removal, and its name
    runs/.trash/.….tmp-0123456789ab          one that is being deleted, or whose deletion was cut off

Each folder of packages has its own trash, so that a removal is one rename: at any moment a package is whole,
in its folder or in the trash. No reader takes an entry of the trash for a run, as lists do not look into it.
"""

from __future__ import annotations

import contextlib
import fnmatch
import glob
import os
import re
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import NamedTuple

import msgspec

from roost.base import durable, safe_read
from roost.base.errors import NotFound, Refused, RoostError, UsageError
from roost.base.text.suggestions import did_you_mean
from roost.base.text.word_list import join_names
from roost.operations import work_progress
from roost.operations.keeping import allocated_bytes, refusals
from roost.operations.listing.named_packages import select_packages
from roost.operations.listing.package_row import PackageSummary
from roost.operations.listing.package_summary import summarize
from roost.package import package_name, sessions
from roost.package.package import PackageFolder

FOLDER = package_name.TRASH
_ENTRY = re.compile(r"(\d{8}T\d{6}\.\d{3})Z_(.+)", re.DOTALL)
_TIME = "%Y%m%dT%H%M%S.%f"
_USUAL_ROOTS = (".", "runs", "Saves")
_MAX_SHOWN = 10
_MAX_NAME_BYTES = 255
"""Of a file or folder, in most file systems."""
_MAX_TRIES = 1000
_LOCK_SECONDS = 10.0


class Removable(msgspec.Struct, frozen=True, kw_only=True):
    """A package that may be removed."""

    path: Path
    summary: PackageSummary
    num_bytes: int


class TrashEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A removed package."""

    path: Path
    name: str
    """Its name before the removal."""
    removed: float
    """The time of the removal, Unix seconds."""
    num_bytes: int


class Deletion(NamedTuple):
    """The result of the deletion of one entry of the trash."""

    path: Path
    num_bytes: int
    error: str | None
    """Why it, or a part of it, is still there; None: it is deleted."""


# --- removal ----------------------------------------------------------------------------------------------


def plan_removal(words: Sequence[str]) -> list[Removable]:
    """Returns the packages that words name, all of which may be removed; nothing is changed.

    Args:
        words: As for `named_packages.select_packages`.

    Raises:
        NotFound: A word names no package.
        UsageError: The query is not valid, or a word names a task that only reads a package.
        Refused: At least one of the packages must not be removed; the message names each, with the reason.
    """
    refusals.require_no_reader(words, verb="removed")
    packages = list(dict.fromkeys(Path(os.path.abspath(one)) for one in select_packages(words)))  # noqa: PTH100  - keeps links
    refusals.require_none(refusals.find_refusals(packages), verb="removed")
    return [
        Removable(path=path, summary=summarize(path), num_bytes=allocated_bytes.folder_bytes(path))
        for path in work_progress.track(packages, "measuring")
    ]


def remove(packages: Sequence[Path]) -> Iterator[tuple[Path, Path]]:
    """Moves packages into the trash of their folders, and yields each with its new path. Those that may not
    be moved any more, since `plan_removal`, are left where they are.

    Raises:
        Refused: At least one was left, after all others were moved.
        OSError: A package could not be moved; it and those after it are where they were.
    """
    left = []
    dependents = refusals.Dependents(packages)  # as of now: the user may have thought about it for an hour
    for package in work_progress.track(packages, "moving"):
        try:
            yield package, _move_to_trash(package, dependents)
        except RoostError as error:
            left.append(f"{package.name}: {error.message}")
    if left:
        raise Refused(f"was not removed: {'; '.join(left)}", fix="the others are in the trash")


def _move_to_trash(package: Path, dependents: refusals.Dependents) -> Path:
    with refusals.locked(PackageFolder(package), dependents, verb="removed"):
        to = _entry_path(package)
        durable.move(package, to)
        return to


def _entry_path(package: Path) -> Path:
    """Returns a new path in the trash of a package's folder, and makes the trash.

    Raises:
        Refused: There is something else in its place.
    """
    trash = package.parent / FOLDER
    durable.make_folder(trash, exist_ok=True)
    _require_folder(trash)
    if not os.access(trash, os.W_OK | os.X_OK):
        owner = refusals.owner(trash)
        raise Refused(
            f"the trash belongs to {owner}",
            where=trash,
            fix=f"ask {owner} to let you write to it, as to its folder",
        )
    now = time.time()
    for number in range(_MAX_TRIES):
        removed = datetime.fromtimestamp(now + number / 1000, UTC).strftime(_TIME)[:-3]
        path = trash / f"{removed}Z_{package.name}"
        if len(os.fsencode(path.name)) > _MAX_NAME_BYTES:
            raise Refused("its name is too long for the trash", where=package, fix="rename the folder first")
        if not os.path.lexists(path):
            return path
    raise Refused("the trash has no free name", where=trash, fix="empty it: roost gc --all")


def _require_folder(trash: Path) -> None:
    if trash.is_symlink() or not trash.is_dir():
        raise Refused("the trash is not a folder", where=trash, fix="rename it: roost makes a new one")


# --- the trash --------------------------------------------------------------------------------------------


def find_roots(folders: Sequence[Path]) -> list[Path]:
    """Returns the folders of packages whose trash is meant: the given ones, else the current folder, its
    ``runs`` and its ``Saves``.

    Raises:
        NotFound: There is no such folder.
    """
    found = []
    for folder in folders:
        if not folder.is_dir():
            raise NotFound("there is no such folder", received=str(folder))
        root = folder.parent if folder.name == FOLDER else folder
        inside = [root / name for name in _USUAL_ROOTS if (root / name / FOLDER).is_dir()]
        found += inside or [root]
    return found or [Path(name) for name in _USUAL_ROOTS if Path(name, FOLDER).is_dir()]


def entries(roots: Sequence[Path]) -> list[TrashEntry]:
    """Returns the removed packages of some folders, the oldest removal first."""
    return [_with_size(path) for path in work_progress.track(_entry_paths(roots), "measuring")]


def contents(root: Path) -> list[Path]:
    """Returns everything in the trash of a folder: removed packages, and what a cut-off deletion has left."""
    trash = root / FOLDER
    return list(trash.iterdir()) if trash.is_dir() and not trash.is_symlink() else []


def _entry_paths(roots: Sequence[Path]) -> list[Path]:
    paths = [path for root in roots for path in contents(root) if _parse(path) is not None]
    return sorted(
        (path for path in paths if path.is_dir() and not path.is_symlink()), key=lambda path: path.name
    )


def _with_size(path: Path) -> TrashEntry:
    parsed = _parse(path)
    assert parsed is not None, "the caller has chosen it by this"
    name, removed = parsed
    return TrashEntry(path=path, name=name, removed=removed, num_bytes=allocated_bytes.folder_bytes(path))


def _parse(path: Path) -> tuple[str, float] | None:
    """Returns the name and the time of the removal; None if the folder is no entry of the trash."""
    match = _ENTRY.fullmatch(path.name)
    if match is None:
        return None
    try:
        return match[2], datetime.strptime(match[1], _TIME).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


# --- restore ----------------------------------------------------------------------------------------------


def restore(words: Sequence[str]) -> Iterator[tuple[Path, Path]]:
    """Moves packages out of the trash, and yields each with its new path. A name that exists meanwhile gets a
    suffix, as that of a new package does.

    Args:
        words: Names of removed packages, the paths that they had, their paths in the trash, or patterns of
            names. All are looked up before the first is moved.

    Raises:
        NotFound: A word names no removed package.
        UsageError: A name is that of several.
        Refused: A process has the package's lock.
        OSError: A package cannot be moved; it is in the trash.
    """
    for path in dict.fromkeys(path for word in words for path in _find_removed(word)):
        parsed = _parse(path)
        assert parsed is not None, "`_find_removed` looks for entries"
        if safe_read.is_locked(path / sessions.LOCK_NAME):
            raise Refused(
                "is in use by another process, in the trash", where=path, fix="let that process end"
            )
        to = package_name.make_unique(path.parent.parent, parsed[0])
        try:
            durable.move(path, to)  # in place of the empty folder, which keeps the name free
        except FileNotFoundError:
            durable.remove_empty_folder(to)
            raise NotFound("is not in the trash any more", received=str(path)) from None
        except BaseException:
            with contextlib.suppress(OSError):
                durable.remove_empty_folder(to)  # not if the package is there already
            raise
        yield path, to


def _find_removed(word: str) -> list[Path]:
    given = Path(word)
    if given.parent.name == FOLDER and _parse(given) is not None and given.is_dir():
        return [given]
    roots = [given.parent] if "/" in word else find_roots([])
    names = {path: (_parse(path) or ("",))[0] for path in _entry_paths(roots)}
    found = [path for path, name in names.items() if given.name in (path.name, name)]
    if not found and glob.has_magic(given.name):
        found = [path for path, name in names.items() if fnmatch.fnmatchcase(name, given.name)]
        if len({names[path] for path in found}) == len(found) > 0:
            return found
    if not found:
        near = did_you_mean(given.name, names.values())
        fix = f"{near}`roost restore` lists the trash; it is that of the current folder and its runs"
        raise NotFound("no removed package has this name", received=word, fix=fix)
    if len(found) > 1:
        shown = join_names([quote(str(path)) for path in found], _MAX_SHOWN)
        raise UsageError(
            f"{len(found)} removed packages have this name", received=word, fix=f"give one of {shown}"
        )
    return found


# --- deletion ---------------------------------------------------------------------------------------------


def delete(roots: Sequence[Path], packages: Sequence[TrashEntry]) -> Iterator[Deletion]:
    """Deletes removed packages for ever, and what deletions that were cut off have left. Each is renamed
    first, so that one whose deletion is cut off is no removed package any more.

    Args:
        roots: The folders whose trash is cleared of such leftovers.
        packages: Removed packages of these folders.

    Raises:
        Refused: Another process deletes from one of them.
    """
    for root in roots:
        trash = root / FOLDER
        if not trash.is_dir() or trash.is_symlink():
            continue
        with _locked(trash):
            for path in [one for one in trash.iterdir() if durable.is_staging(one.name)]:
                yield _delete(path, allocated_bytes.folder_bytes(path))
            for one in packages:
                if one.path.parent == trash:
                    yield _delete(one.path, one.num_bytes)


@contextlib.contextmanager
def _locked(trash: Path) -> Iterator[None]:
    """Locks a trash, so that no two processes delete the same at the same time."""
    fd = os.open(trash, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        is_locked = True
        with contextlib.suppress(OSError):  # a file system without such locks
            is_locked = safe_read.try_lock(fd, _LOCK_SECONDS)
        if not is_locked:
            raise Refused("another process deletes from this trash", where=trash, fix="let that process end")
        yield
    finally:
        os.close(fd)


def _delete(path: Path, num_bytes: int) -> Deletion:
    if safe_read.is_locked(path / sessions.LOCK_NAME):
        return Deletion(path, num_bytes, "is in use by another process")
    if (blocked := _first_foreign(path)) is not None:
        return Deletion(path, num_bytes, f"{blocked} belongs to another user, or is read-only")
    doomed = path
    try:
        if not durable.is_staging(path.name):
            doomed = durable.staging_name(path.with_name(path.name[-_MAX_SHOWN:]))
            durable.rename(path, doomed)
        durable.discard(doomed)
    except FileNotFoundError:
        return Deletion(path, 0, None)  # another process deletes it
    except OSError as error:
        return Deletion(path, num_bytes, error.strerror or str(error))
    if os.path.lexists(doomed):
        return Deletion(doomed, num_bytes, "a part of it could not be deleted: try `rm -r`")
    return Deletion(path, num_bytes, None)


def _first_foreign(path: Path) -> Path | None:
    """Returns the first folder of which this user may not delete the content; None if there is none."""
    waiting = [] if path.is_symlink() else [os.fspath(path)]
    while waiting:
        folder = waiting.pop()
        if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            return Path(folder)
        with contextlib.suppress(OSError), os.scandir(folder) as listed:
            waiting += [one.path for one in listed if one.is_dir(follow_symlinks=False)]
    return None
