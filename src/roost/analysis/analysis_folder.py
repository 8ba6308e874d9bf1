"""The folder of an analysis and the files saved in it: ``<package>/analysis/<n>/``, or ``<DIR>/<n>/`` with
another root.

It holds request.json (what was requested), script.py (the copy that ran), session.json (the session record),
_output.txt, result.json, saved files, and after a failure or a hang traceback.txt or stacks.txt.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Required, TypedDict

from roost.analysis.analyzers import analyzer_folder
from roost.base import durable
from roost.base.errors import ContractError, Refused, UsageError
from roost.base.text.typed_path import typed_path
from roost.package import package_name, sessions
from roost.package.kinds import TaskKind
from roost.package.package import PackageFolder
from roost.package.seals.session_seal import FOLDER_SEAL
from roost.package.session_schema import REQUIRED, Checked, Count, JsonFields, Pid, SessionRecord
from roost.package.sessions import Session

NAME = "analysis"
"""The folder of a package that holds its analyses."""

REQUEST, RECORD, RESULT = "request.json", "session.json", "result.json"
OUTPUT, SCRIPT = "_output.txt", "script.py"
TRACEBACK, STACKS = "traceback.txt", "stacks.txt"
LOST = "its analyzer ended while the script ran (os._exit, a crash of native code, or a kill)"
"""The error of a script whose analyzer is gone."""
_ASKING_SECONDS = 10.0
"""So long a request may exist before it is in the inbox. The process that has asked may live on for days."""
RESERVED_NAMES = frozenset([REQUEST, RECORD, RESULT, OUTPUT, SCRIPT, TRACEBACK, STACKS, FOLDER_SEAL])
"""Names that a saved file may not have."""


class AnalyzedScript(TypedDict, total=False):
    """The script of an analysis in its request."""

    path: Required[str]
    """Its path when the analysis was requested; the copy that runs is in the folder."""
    sha256: str | None
    """The SHA-256 of the copy."""


class AnalysisSessionRequest(JsonFields):
    """The fields of request.json that are read again, besides the arguments of the analysis."""

    script: Checked[AnalyzedScript] = REQUIRED
    host: Checked[str] = REQUIRED
    boot_id: Checked[str] = REQUIRED
    pid: Checked[Pid] = REQUIRED
    """With the fields beside it: the process that requested the analysis, as in `SessionRequest`."""
    start_ticks: Checked[int | None] = None
    checkpoint: Checked[Count | None] = None
    """The id of the requested checkpoint; None: the newest good one."""
    untrained: Checked[bool] = False
    """Whether the model is analyzed as built, without the weights of a checkpoint."""
    analyzer: Checked[int | None] = None
    """The number of the analyzer that runs it; None: a process of its own."""


def analyses_root(package: PackageFolder, out: Path | str | None) -> Path:
    """Returns the folder for a package's analyses: in the package, or ``out``.

    Raises:
        Refused: ``out`` is in the package, but not in its folder of analyses.
    """
    own = package.path / NAME
    if out is None:
        return own
    place = typed_path(out).absolute()
    real = place.resolve()
    if real.is_relative_to(package.path.resolve()) and not real.is_relative_to(own.resolve()):
        fix = "name a folder outside of the package, or leave out -o (in Python: out)"
        raise Refused("an analysis cannot be stored among the package's own files", where=place, fix=fix)
    return place


def create(root: Path) -> Path:
    """Creates the folder of a new analysis below ``root`` and returns it; its name is its number. Safe with
    concurrent processes.

    Raises:
        Refused: The folder cannot be created there.
    """
    try:
        return package_name.make_numbered(root)
    except OSError as error:
        raise Refused(
            f"the analysis cannot be stored here: {error.strerror or error}",
            where=root,
            fix="name another folder: -o DIR (in Python: out=DIR)",
        ) from error


def write_request(folder: Path, request: Mapping[str, Any]) -> None:
    """Writes request.json: the request, and the identity of this process."""
    durable.write(
        folder / REQUEST, sessions.to_json({"kind": TaskKind.ANALYZE, **sessions.own_identity(), **request})
    )


def read(folder: Path) -> Session:
    """Reads an analysis as a session: its request and its session record."""
    found = sessions.read(folder / REQUEST, folder / RECORD, number=int(folder.name))
    analyzer = found.request.get("analyzer")
    if type(analyzer) is not int or found.damage is not None:
        return found
    if found.record is not None:
        if found.state == "crashed" and found.record.state != "crashed":
            package = shlex.quote(str(folder.parent.parent))
            fix = f"`roost submit analyze {package}` starts another one"
            found.record.state, found.record.error = "crashed", f"{LOST}; fix: {fix}"
        return found
    waiting = _waiting_call(folder, analyzer, is_asked=found.is_live and _is_new(found.request))
    if waiting.state == "crashed":  # or it began between reading its record and the look into the inbox
        found = sessions.read(folder / REQUEST, folder / RECORD, number=int(folder.name))
    return found if found.record is not None else replace(found, record=waiting)


def _waiting_call(folder: Path, analyzer: int, *, is_asked: bool) -> SessionRecord:
    """Returns the record of a call that an analyzer has not begun. The process that has asked for it may be
    gone: the analyzer does not depend on it.

    Args:
        folder: The folder of the analysis.
        analyzer: The number of the analyzer.
        is_asked: Whether the process that asks for it exists and has just begun to: it adds the call to the
            inbox last.
    """
    home = folder.parent.parent / analyzer_folder.NAME / str(analyzer)
    newest = analyzer_folder.newest_session(home)
    if newest is not None and not newest.is_live:
        return SessionRecord(state="crashed", error="its analyzer ended before the script began")
    if is_asked or analyzer_folder.inbox(home).is_queued(int(folder.name)):
        return SessionRecord(state="starting")
    return SessionRecord(state="crashed", error="it was removed, or the process that asked for it was killed")


def _is_new(request: Mapping[str, Any]) -> bool:
    created = request.get("created")
    return not isinstance(created, int | float) or time.time() - created < _ASKING_SECONDS


def read_all(root: Path, is_listed: Callable[[int], bool] = lambda _: True) -> list[Session]:
    """Returns the analyses below ``root`` with a request.json, oldest first.

    Args:
        root: The folder of all analyses.
        is_listed: Whether the analysis of a number is returned; the others are not read.
    """
    numbers = filter(is_listed, package_name.numbers(root))
    return [read(root / str(n)) for n in numbers if (root / str(n) / REQUEST).is_file()]


def success_times(root: Path, analyzer: int, *, since: float) -> Iterator[float]:
    """Yields when calls of an analyzer succeeded that began at a time or later, newest first; Unix seconds.

    Args:
        root: The folder of all analyses.
        analyzer: The number of the analyzer.
        since: Unix seconds.
    """
    for number in reversed(package_name.numbers(root)):
        record = sessions.read(root / str(number) / REQUEST, root / str(number) / RECORD, number=number)
        if record.request.get("analyzer") != analyzer or record.recorded.started is None:
            continue
        if record.recorded.started < since:
            return
        if record.recorded.state == "succeeded" and record.recorded.ended is not None:
            yield record.recorded.ended


def script_folder(folder: Path) -> Path:
    """Returns the folder of the original script; the analysis's own folder if it is unknown."""
    script: object = AnalysisSessionRequest.from_json(read(folder).request).script
    path = script.get("path") if isinstance(script, dict) else None
    return Path(path).parent if isinstance(path, str) else folder


def read_result(folder: Path) -> dict[str, Any]:
    """Reads result.json; empty if the analysis was killed before it wrote one."""
    return sessions.load_json(folder / RESULT) or {}


class SavedFiles:
    """The saved files of one analysis.

    Args:
        place: The folder of the analysis.
    """

    def __init__(self, place: Path) -> None:
        self.place = place
        self.saved: list[str] = []
        """Names of the files in the order in which they were written."""

    def write(self, name: str, suffix: str, data: bytes) -> Path:
        """Writes ``name.suffix``, or ``name-2.suffix``, ``-3`` … if that exists; returns the path.

        Raises:
            ContractError: The name is not a plain file name.
            OSError: The file cannot be written.
        """
        stem = _check_name(name).removesuffix(f".{suffix}")
        number = 1
        while True:
            path = self.place / (f"{stem}.{suffix}" if number == 1 else f"{stem}-{number}.{suffix}")
            if path.name not in RESERVED_NAMES and not os.path.lexists(path):
                break
            number += 1
        durable.write(path, data)
        self.saved.append(path.name)
        return path


def _check_name(name: object) -> str:
    try:
        is_safe = isinstance(name, str) and package_name.folder_name(name) == name
    except UsageError:
        is_safe = False
    if isinstance(name, str) and is_safe:
        return name
    raise ContractError(
        "is not a file name",
        setting="save(name)",
        received=name,
        fix="use letters, digits, '-', '_', '.' and no '/'; do not begin with '.' or '-'",
    )
