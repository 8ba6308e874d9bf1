"""One analysis: loads the package, calls the function, writes the result."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from roost.analysis import result_values
from roost.analysis.analysis_folder import RESULT, SavedFiles
from roost.analysis.analysis_session import AnalysisSession, AnalyzedPackage
from roost.analysis.project_analysis import ProjectAnalysis
from roost.base import durable, traceback_frames
from roost.base.exception_record import record_exception
from roost.base.traceback_frames import ProjectFiles
from roost.package.checkpoints.checkpoint import Manifest
from roost.package.dlnest.original_checkpoint import known_step
from roost.package.kinds import PackageKind
from roost.package.package import PackageFolder
from roost.project.dlnest.trained_project import load_trained
from roost.project.loaded_model import load_experiment
from roost.train.step import seeding

FORMAT = 1
"""The format of result.json."""
_MAX_CHARACTERS = 2000
AnalysisFunction = Callable[[Any], Any]
"""Takes an `AnalysisSession`, or a `ProjectAnalysis` for a package of DLNest's contract."""


class AnalysisRequest(NamedTuple):
    """What to analyze: a checkpoint or untrained weights, on which device."""

    checkpoint: int | None = None
    """None: the newest good one."""
    untrained: bool = False
    device: str = "auto"
    project: str | None = None
    """The project's folder, for ``${project}``; None: the folder from which the package was made."""
    trust: bool = False
    """Whether pickles of the checkpoint are read that are not signed with the key of this user."""


def run_analysis(
    package: PackageFolder,
    place: Path,
    request: AnalysisRequest,
    *,
    script: Mapping[str, Any],
    function: Callable[[], AnalysisFunction],
) -> Any:
    """Loads a package, analyzes it as `run_loaded` does, and ends the work with it.

    Args:
        package: The package, which must be the working folder; only ``place`` is written.
        place: The folder of this analysis.
        request: What to load.
        script: Path and sha256 of the script, for the result.
        function: Returns the function to call, after the package's code became importable.

    Raises:
        RoostError: The package cannot be loaded.
        BaseException: Any error of the project's code or the function; it is in result.json as well.
    """
    load = functools.partial(load_package, package, request)
    return _run(package, place, request, script=script, function=function, load=load, is_last=True)


def run_loaded(
    session: AnalyzedPackage,
    place: Path,
    request: AnalysisRequest,
    *,
    script: Mapping[str, Any],
    function: Callable[[], AnalysisFunction],
) -> Any:
    """Calls a function on a loaded package, writes result.json, and returns the value. The package stays
    loaded; the arguments and errors are those of `run_analysis`."""
    return _run(
        session.package, place, request, script=script, function=function, load=lambda: session, is_last=False
    )


def _run(
    package: PackageFolder,
    place: Path,
    request: AnalysisRequest,
    *,
    script: Mapping[str, Any],
    function: Callable[[], AnalysisFunction],
    load: Callable[[], AnalyzedPackage],
    is_last: bool,
) -> Any:
    began = time.monotonic()
    files = SavedFiles(place)
    session: AnalyzedPackage | None = None

    def write(**ending: Any) -> None:
        write_result(
            files,
            own=ProjectFiles([package.path, Path(str(script["path"])).parent]),
            script=script,
            checkpoint=session.checkpoint if session is not None else None,
            device=str(session.device) if session is not None else None,
            seconds=time.monotonic() - began,
            **ending,
        )

    try:
        session = load()
        try:
            with _ending_forks():
                analyze = function()
                session._begin(files)
                seeding.seed_all(seeding.mix(session._seed, "analysis"))
                value = analyze(session)
        finally:
            if is_last:
                session._end()
    except BaseException as error:
        _add_project_note(error, Path(request.project or package.project))
        with contextlib.suppress(OSError):  # a full disk must not hide the error
            write(error=error)
        raise
    write(value=value)
    return value


@contextlib.contextmanager
def _ending_forks() -> Iterator[None]:
    """Ends a process that the function has forked where the function ends: it must not store the result, or
    go on as a second analyzer."""
    own, code = os.getpid(), 1
    try:
        yield
        code = 0
    except SystemExit as error:
        if os.getpid() == own:
            raise
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException as error:
        if os.getpid() == own:
            raise
        traceback.print_exception(error)
    finally:
        if os.getpid() != own:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
            os._exit(code & 0xFF)


def load_package(
    package: PackageFolder, request: AnalysisRequest, *, before: AnalyzedPackage | None = None
) -> AnalyzedPackage:
    """Loads a package according to its kind, and prints notes. The working folder must be the package.

    Args:
        package: The package.
        request: What to load.
        before: The same package with another checkpoint; its data are used again, if the kind of the package
            allows that.

    Raises:
        RoostError: The package cannot be loaded.
        BaseException: Any error of the project's code.
    """
    if PackageKind.of(package.request) is PackageKind.DLNEST:
        given = request._asdict()
        del given["project"]  # nothing of such a package refers to it
        trained = load_trained(package, **given)
        _print(trained.notes)
        return ProjectAnalysis(package, trained)
    kept = before._loaded if isinstance(before, AnalysisSession) else None
    loaded = load_experiment(package, **request._asdict(), before=kept)
    _print(loaded.notes)
    return AnalysisSession(package, loaded)


def _print(notes: list[str]) -> None:
    for note in notes:
        print(note, flush=True)


def _add_project_note(error: BaseException, project: Path) -> None:
    """Adds a note if the error names the project's folder, which does not exist here: packages are
    relocatable."""
    if not project.is_dir() and str(project) in record_exception(error).text_with_notes:
        error.add_note(
            f"the project's folder {project} does not exist here; name its new place: --project DIR"
        )


def write_result(
    files: SavedFiles,
    *,
    own: ProjectFiles,
    script: Mapping[str, Any],
    checkpoint: Manifest | None,
    device: str | None,
    seconds: float,
    value: object = None,
    error: BaseException | None = None,
) -> None:
    """Writes result.json, as the last file of an analysis.

    Args:
        files: The folder of the analysis, and the files that were saved.
        own: Identifies the user's files, whose lines the traceback shows.
        script: Path and sha256 of the script.
        checkpoint: The analyzed checkpoint.
        device: The device of the runner.
        seconds: Duration since the start of loading.
        value: Return value of the function, see `result_values.JsonResult`.
        error: The error that ended the analysis.
    """
    described = result_values.JsonResult(value, files)
    body = {
        "format": FORMAT,
        "script": dict(script),
        "checkpoint": {"id": checkpoint.id, "step": known_step(checkpoint), "epoch": checkpoint.epoch}
        if checkpoint is not None
        else None,
        "device": device,
        "seconds": round(seconds, 3),
        "saved": files.saved,
        "value": described.value,
        "nonfinite": described.nonfinite,
        "notes": described.notes,
        "error": _error(error, own) if error is not None else None,
    }
    durable.write(files.place / RESULT, json.dumps(body, indent=1, allow_nan=False).encode() + b"\n")


def _error(error: BaseException, own: ProjectFiles) -> dict[str, Any]:
    found = record_exception(error)
    # An error before any of the user's code ran has no line of it.
    lines = "\n".join(traceback_frames.format_chain(found, own)) if own.innermost_line(found) else None
    return {
        "type": found.name,
        "message": traceback_frames.truncate(found.text_with_notes, _MAX_CHARACTERS),
        "traceback": lines,
    }
