"""`roost.analyze`: an analysis in this process, for notebooks and programs."""

from __future__ import annotations

import hashlib
import inspect
import textwrap
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from roost.analysis import analysis_folder, preconditions
from roost.analysis.analysis_run import AnalysisFunction, AnalysisRequest, run_analysis
from roost.base import durable
from roost.base.errors import ContractError
from roost.package.seals import session_seal
from roost.package.sessions import UnsupervisedRecord
from roost.project.package_context import package_code


def analyze(
    record_path: Path | str,
    function: AnalysisFunction,
    *,
    checkpoint: int | None = None,
    untrained: bool = False,
    device: str = "auto",
    project: Path | str | None = None,
    out: Path | str | None = None,
    trust: bool = False,
) -> Any:
    """Loads the trained model of a package, calls ``function`` with it, and returns the result.

    ::

        accuracy = roost.analyze("runs/NAME", lambda self: self.log["valid/accuracy"][1][-1])

    The result is stored in the package as with `roost analyze`. Afterwards the package's modules, working
    folder and random generators are removed from this process, so that another package with modules of the
    same names can follow. The number of threads of this process is kept.

    Args:
        record_path: The package's folder.
        function: Takes the `AnalysisSession`, which DLNest calls ``self``.
        checkpoint: Id of the checkpoint; None: the newest good one.
        untrained: Uses the weights as the Runner builds them.
        device: auto, cpu, cuda, cuda:1, …
        project: The project's folder now, for ``${project}``; None: the folder from which the package was
            made.
        out: Stores the result in a new folder below this one instead of the package.
        trust: Reads pickled objects of the checkpoint that another user wrote: they may run any code.

    Raises:
        NotFound: There is no such package, checkpoint or project.
        CheckpointError: The checkpoint is damaged, or all are.
        UsageError: ``untrained`` with a checkpoint.
        Refused: The package has no Runner, or the result cannot be stored there.
        Exception: Any error of the project's code or the function.
    """
    if not callable(function):
        raise ContractError(
            "is not a function",
            setting="function",
            received=function,
            fix="pass one, such as lambda self: ...",
        )
    package = preconditions.open_with_runner(record_path)
    preconditions.check_checkpoints(package, checkpoint, untrained=untrained)
    request = AnalysisRequest(
        checkpoint, untrained, device, str(preconditions.project_folder(package, project)), trust
    )
    place = analysis_folder.create(analysis_folder.analyses_root(package, out))
    script = _script(function, place)
    analysis_folder.write_request(
        place, {**request._asdict(), "script": script, "created": round(time.time(), 3)}
    )
    record = UnsupervisedRecord(place / analysis_folder.RECORD, int(place.name))
    try:
        with package_code(package):
            value = run_analysis(package, place, request, script=script, function=lambda: function)
    except BaseException as error:
        record.end("failed", "exception", error=error)
        with suppress(OSError):  # never in place of the error
            session_seal.write_folder_seal(place)
        raise
    record.end("succeeded", "finished")
    session_seal.write_folder_seal(place)
    return value


def _script(function: AnalysisFunction, place: Path) -> dict[str, Any]:
    """Returns the origin of the function; stores its source, if available, in the analysis folder."""
    name = getattr(function, "__qualname__", type(function).__qualname__)
    try:
        file = inspect.getsourcefile(function) or ""
        source = textwrap.dedent(inspect.getsource(function)).encode()
    except (OSError, TypeError):  # defined at a prompt, or not a plain function
        return {"path": f"{getattr(function, '__module__', '')}:{name}", "sha256": None}
    durable.write(place / analysis_folder.SCRIPT, source)
    return {"path": f"{file}:{name}", "sha256": hashlib.sha256(source).hexdigest()}
