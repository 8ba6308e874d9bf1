"""Where an analysis lives: ``<package>/analysis/<n>/``, or ``<DIR>/<n>/`` where another place was asked for.

It holds request.json (what was asked), script.py (the copy that ran), session.json (what became of it, as a
session's record), _output.txt, result.json, what was saved, and when it failed or hung traceback.txt or
stacks.txt.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from roost.base import durable
from roost.base.errors import Refused
from roost.package import sessions
from roost.package.package import PackageFolder
from roost.package.sessions import Session

NAME = "analysis"
"""The folder of a package that holds its analyses."""

REQUEST, RECORD, RESULT = "request.json", "session.json", "result.json"
OUTPUT, SCRIPT = "_output.txt", "script.py"
TRACEBACK, STACKS = "traceback.txt", "stacks.txt"
RESERVED_NAMES = frozenset([REQUEST, RECORD, RESULT, OUTPUT, SCRIPT, TRACEBACK, STACKS])
"""Names that nothing saved may have."""


def analyses_root(package: PackageFolder, out: Path | str | None) -> Path:
    """Where the folders of a package's analyses go: into the package, or below ``out``.

    Raises:
        Refused: ``out`` is in the package, and not in its folder of analyses.
    """
    own = package.path / NAME
    if out is None:
        return own
    place = Path(out).expanduser().absolute()
    real = place.resolve()
    if real.is_relative_to(package.path.resolve()) and not real.is_relative_to(own.resolve()):
        fix = "name a folder outside of it, or leave out -o (in Python: out)"
        raise Refused("an analysis cannot be stored among the package's own files", where=place, fix=fix)
    return place


def create(root: Path) -> Path:
    """Makes the folder of a new analysis below ``analyses_root``; its name is its number. Safe among many processes:
    making a folder is atomic.

    Raises:
        Refused: It cannot be made there.
    """
    try:
        durable.make_folders(root)
        number = 0
        while True:
            number = max([number, *_numbers(root)]) + 1
            try:
                durable.make_folder(root / str(number))
                return root / str(number)
            except FileExistsError:
                continue  # somebody else was faster
    except OSError as error:
        raise Refused(
            f"the analysis cannot be stored here: {error.strerror or error}",
            where=root,
            fix="name another folder for it: -o DIR (in Python: out=DIR)",
        ) from error


def _numbers(root: Path) -> list[int]:
    with os.scandir(root) as entries:
        return sorted(int(entry.name) for entry in entries if entry.name.isdecimal())


def write_request(folder: Path, asked: Mapping[str, Any]) -> None:
    """Writes down what was asked, and by which process.

    Raises:
        OSError: It cannot be written.
    """
    durable.write(folder / REQUEST, sessions.to_json({"kind": "analysis", **sessions.own_identity(), **asked}))


def read(folder: Path) -> Session:
    """What was asked in an analysis's folder, and what became of it."""
    return sessions.read(folder / REQUEST, folder / RECORD, number=int(folder.name))


def read_all(root: Path) -> list[Session]:
    """All analyses below ``analyses_root``, oldest first; one whose request was never written is none."""
    if not root.is_dir():
        return []
    return [read(root / str(n)) for n in _numbers(root) if (root / str(n) / REQUEST).is_file()]


def script_folder(folder: Path) -> Path:
    """Where the script of an analysis is from; the analysis's own folder when nobody can tell."""
    script = read(folder).request.get("script")
    path = script.get("path") if isinstance(script, dict) else None
    return Path(path).parent if isinstance(path, str) else folder


def read_result(folder: Path) -> dict[str, Any]:
    """result.json; empty when the analysis was ended before it could write one."""
    return sessions.load_json(folder / RESULT) or {}
