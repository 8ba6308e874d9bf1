"""Which files a seal covers: for a session, ``sessions/<n>.seal.json``, all that it and the creation of its
package wrote; for an analysis, a prediction or a cell of an evaluation, ``seal.json``, all of its folder.

::

    sessions/1.seal.json    args.json … records/1.jsonl system/1.jsonl sessions/1.json media/… _output.txt
    sessions/2.seal.json    records/2.jsonl sessions/2.json sessions/1.seal.json, and what session 2 rewrote

A file is sealed once, so that a change between two sessions is never sealed as good; only the files that
sessions rewrite (`is_rewritten`) are sealed again by the session that did. The newest seal of a file counts.
A session whose guard was killed has no seal: the next session seals its files. No session seals what it
cannot have written: a file of a session before the newest seal, or an older file in ``media``: it remains
unsealed.

Not covered are checkpoints and black boxes, whose manifests have digests; the project's code, whose digests
are in manifest.json; mirrors, which are copies; and ``_desc: …``, which may be added at any time.
"""

# Standard library only

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from roost.base import durable
from roost.package.results import system_metrics
from roost.package.seals import seal
from roost.package.seals.seal import BrokenSeal, Seal
from roost.package.session_schema import ENDED_STATES, SessionRecord

FOLDER_SEAL = "seal.json"
"""The seal of an analysis, a prediction, an evaluation or one of its cells, in its folder."""
LASTING = ("request.json", "args.json", "provenance.json", "manifest.json")
"""The files at the top of a package that never change."""
_REWRITTEN = (
    "environment.json",
    "_package.json",
    "_model.txt",
    "init_from.json",
    "staged.json",
    "skipped.jsonl",
    "progress",
)
_OUTPUT = re.compile(r"_output(_\d+)?\.txt")
_OF_SESSION = re.compile(r"(\d+)\.(?!node-)[^/]+")
"""Not the files of further machines, which may end later."""
_FOLDERS = ("sessions", "records", system_metrics.FOLDER)
"""The folders whose files each belong to one session."""
_SESSION_SEAL = re.compile(r"(\d+)\.seal\.json")


def seal_path(package: Path, session: int) -> Path:
    """Returns the path of a session's seal."""
    return package / "sessions" / f"{session}.seal.json"


def write(path: Path) -> None:
    """Writes the seal of an ended session or analysis, unless its record says that it has not ended. The
    caller must hold the package's lock, if it is the seal of a session.

    Args:
        path: The path of the seal: `seal_path`, or `FOLDER_SEAL` in the folder.

    Raises:
        OSError: A file cannot be read, or the seal cannot be written.
    """
    if path.name == FOLDER_SEAL:
        write_folder_seal(path.parent)
        return
    package, session = path.parent.parent, int(path.name.partition(".")[0])
    record = SessionRecord.load(str(path.parent / f"{session}.json"))
    if record is None or record.state not in ENDED_STATES:
        return  # it was not started, and its files may be removed again
    seal.write(path, package, list(_names_to_seal(package, session)), session=session)


def write_folder_seal(folder: Path, *, max_seconds: float | None = None) -> None:
    """Seals all files of a folder that will not change any more.

    Args:
        folder: The folder.
        max_seconds: As for `seal.write`.

    Raises:
        OSError: As `write`.
    """
    names = [name for name in _walk(folder, "") if name != FOLDER_SEAL]
    seal.write(folder / FOLDER_SEAL, folder, names, max_seconds=max_seconds)


def is_inside(name: str) -> bool:
    """Whether a name in a seal, which any program may have written, is one of a file of its folder."""
    return not name.startswith("/") and "\0" not in name and ".." not in name.split("/")


def folder_damage(folder: Path, *, is_judged: Callable[[str], bool] = is_inside) -> str | None:
    """Returns how a folder differs from its seal, ``rows.parquet is missing``; None if it does not, or has no
    seal.

    Args:
        folder: The folder.
        is_judged: Whether a file is compared, by its path in the folder.
    """
    try:
        sealed = seal.read(folder / FOLDER_SEAL).files
    except FileNotFoundError:
        return None
    except BrokenSeal as error:
        return f"{FOLDER_SEAL} is damaged: {error.message}"
    damages = (
        (name, seal.damage(folder / name, one))
        for name, one in sealed.items()
        if is_inside(name) and is_judged(name)
    )
    return next((f"{name} {damage}" for name, damage in damages if damage is not None), None)


def read_all(package: Path) -> dict[int, Seal | BrokenSeal]:
    """Returns the seals of the sessions by number, ascending; for one that is not as it was written, the
    error."""
    found: dict[int, Seal | BrokenSeal] = {}
    for number in _seal_numbers(package):
        try:
            one = seal.read(seal_path(package, number))
            if one.session != number:
                raise BrokenSeal(f"it is the seal of session {one.session}")
            found[number] = one
        except BrokenSeal as error:
            found[number] = error
    return found


def is_rewritten(name: str) -> bool:
    """Whether sessions may rewrite a file that an earlier session wrote."""
    return not (name in LASTING or name.startswith(tuple(f"{folder}/" for folder in _FOLDERS)))


def coverable_names(package: Path, session: int) -> Iterator[str]:
    """Yields the files of a package that the seal of this session, or of an earlier one, covers."""
    tops = sorted(os.listdir(package))  # noqa: PTH208  - names alone, of a package of any size
    yield from (name for name in tops if name in LASTING or name in _REWRITTEN or _OUTPUT.fullmatch(name))
    for folder in _FOLDERS:
        for name in _names_of_sessions(package, folder):
            match = _OF_SESSION.fullmatch(name.removeprefix(f"{folder}/"))
            if match is not None and int(match[1]) <= session and name != f"sessions/{session}.seal.json":
                yield name
    yield from _walk(package / "media", "media/")
    if (package / "profile").is_dir():  # a project may have a folder of this name, too
        for name in sorted(os.listdir(package / "profile")):  # noqa: PTH208
            if name.isdecimal():
                yield from _walk(package / "profile" / name, f"profile/{name}/")


def _names_of_sessions(package: Path, folder: str) -> Iterator[str]:
    if folder != system_metrics.FOLDER:
        return _walk(package / folder, f"{folder}/")
    # A project may have a folder of this name, of any size.
    names = sorted(_list(package / folder))
    return (f"{folder}/{name}" for name in names if system_metrics.FILE_NAME.fullmatch(name))


def _list(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208
    except OSError:
        return []


def _names_to_seal(package: Path, session: int) -> Iterator[str]:
    seals = {number: one for number, one in read_all(package).items() if number < session}
    whole = {number: one for number, one in seals.items() if isinstance(one, Seal)}
    sealed = {name for one in whole.values() for name in one.files}
    newest = max(seals, default=-1)
    since = _first_change(package, max(newest, 0) + 1, session)
    for name in coverable_names(package, session):
        number = _session_of(name)
        if number is not None and name not in sealed:
            is_own = number > newest or (name.endswith(".seal.json") and number in whole)
        elif name in sealed or newest >= 0 or name.startswith(("media/", "profile/")):
            is_own = is_rewritten(name) and (package / name).lstat().st_mtime_ns >= since
        else:
            is_own = True  # of the package's creation
        if is_own:
            yield name


def _session_of(name: str) -> int | None:
    """Returns the session of a file in `_FOLDERS`; None of any other."""
    folder, _, file = name.partition("/")
    match = _OF_SESSION.fullmatch(file) if folder in _FOLDERS else None
    return int(match[1]) if match is not None else None


def _first_change(package: Path, first: int, last: int) -> int:
    """Returns when the first session after the newest seal was requested, by the clock of the file system:
    what was written before is as it was sealed, or damaged."""
    for number in range(first, last + 1):
        try:
            return os.stat(package / "sessions" / f"{number}.request.json").st_mtime_ns  # noqa: PTH116
        except FileNotFoundError:
            continue
    return 0


def _seal_numbers(package: Path) -> list[int]:
    names = _list(package / "sessions")
    return sorted(int(match[1]) for name in names if (match := _SESSION_SEAL.fullmatch(name)))


def _walk(folder: Path, prefix: str) -> Iterator[str]:
    """Yields the plain files below a folder, without those of unfinished writes."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(Path(entry.path), f"{prefix}{entry.name}/")
        elif entry.is_file(follow_symlinks=False) and not durable.is_staging(entry.name):
            yield prefix + entry.name
