"""One analysis: load the package, call the function, write down what came of it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from roost.analysis import result_file
from roost.analysis.analysis_session import AnalysisSession
from roost.analysis.saved_files import SavedFiles
from roost.base.exception_record import record_exception
from roost.base.traceback_frames import ProjectFiles
from roost.package.package import PackageFolder
from roost.project.loaded_model import Loaded, load_experiment
from roost.train.step import seeding

AnalysisFunction = Callable[[AnalysisSession], Any]


class AnalysisRequest(NamedTuple):
    """What to look at, and where."""

    checkpoint: int | None = None
    """The newest good one when None."""
    untrained: bool = False
    device: str = "auto"
    project: str | None = None
    """The project's folder, for ``${project}``; where it was when None."""


def run_analysis(
    package: PackageFolder,
    place: Path,
    asked: AnalysisRequest,
    *,
    script: Mapping[str, Any],
    function: Callable[[], AnalysisFunction],
) -> Any:
    """Analyses a package; call it with the package as the working folder. Gives what the function gave.

    Args:
        package: The package; nothing of it is changed but ``place``.
        place: The folder of this analysis.
        asked: What to look at.
        script: Path and sha256 of what runs, for the result.
        function: Gives what to call, once the package's code can be imported.

    Raises:
        RoostError: The package cannot be loaded.
        BaseException: Whatever the project's code or the function raises; it is in result.json as well.
    """
    began = time.monotonic()
    files = SavedFiles(place)
    loaded: Loaded | None = None

    def write(**ending: Any) -> None:
        result_file.write(
            files,
            own=ProjectFiles([package.path, Path(str(script["path"])).parent]),
            script=script,
            checkpoint=loaded.checkpoint if loaded is not None else None,
            device=str(loaded.runner.device) if loaded is not None else None,
            seconds=time.monotonic() - began,
            **ending,
        )

    try:
        loaded = load_experiment(package, **asked._asdict())
        for note in loaded.notes:
            print(note, flush=True)
        called = function()
        seeding.seed_all(seeding.mix(loaded.settings.seed, "analysis"))
        value = called(AnalysisSession(package, loaded, files))
    except BaseException as error:
        _add_project_note(error, Path(asked.project or package.project))
        with contextlib.suppress(OSError):  # a full disk must not hide the error
            write(error=error)
        raise
    write(value=value)
    return value


def _add_project_note(error: BaseException, project: Path) -> None:
    """What is missing may lie in the project's folder, which did not come along with the package."""
    if not project.is_dir() and str(project) in record_exception(error).text_with_notes:
        error.add_note(f"the project's folder {project} is not here; name where it is now: --project DIR")
