"""`roost.analyze`: an analysis in this process, for notebooks and programs."""

from __future__ import annotations

import hashlib
import inspect
import textwrap
import time
from pathlib import Path
from typing import Any

from roost.analysis import analysis_folder, preconditions
from roost.analysis.analysis_run import AnalysisFunction, AnalysisRequest, run_analysis
from roost.base import durable
from roost.base.errors import ContractError
from roost.package.sessions import UnsupervisedRecord
from roost.project.package_context import inside


def analyze(
    record_path: Path | str,
    function: AnalysisFunction,
    *,
    checkpoint: int | None = None,
    untrained: bool = False,
    device: str = "auto",
    project: Path | str | None = None,
    out: Path | str | None = None,
) -> Any:
    """Builds what a package trained, calls ``function`` with it, and gives what that returns.

    ::

        accuracy = roost.analyze("runs/NAME", lambda self: self.log["valid/accuracy"][1][-1])

    The result is stored in the package, as that of `roost analyze` is, and the package's code, working folder
    and random generators are gone from this process afterwards: another package with modules of the same
    names may be next. The number of threads stays as it is here.

    Args:
        record_path: The package's folder.
        function: Takes the `AnalysisSession`, which document 000 calls ``self``.
        checkpoint: The id of the checkpoint to look at; the newest good one when None.
        untrained: The weights as the Runner builds them.
        device: auto, cpu, cuda, cuda:1, …
        project: Where the project is now, for ``${project}``; where it was when None.
        out: Stores the result in a new folder below this one, and not in the package.

    Raises:
        NotFound: There is no such package, checkpoint or project.
        CheckpointError: The checkpoint is damaged, or all are.
        UsageError: ``untrained`` with a checkpoint.
        Refused: The package has no Runner, or the result cannot be stored there.
        Exception: Whatever the project's code or the function raises.
    """
    if not callable(function):
        raise ContractError("is no function", setting="function", received=function, fix="lambda self: ...")
    package = preconditions.open_with_runner(record_path)
    preconditions.check_checkpoints(package, checkpoint, untrained=untrained)
    asked = AnalysisRequest(
        checkpoint, untrained, device, str(preconditions.project_folder(package, project))
    )
    place = analysis_folder.create(analysis_folder.analyses_root(package, out))
    script = _script(function, place)
    analysis_folder.write_request(
        place, {**asked._asdict(), "script": script, "created": round(time.time(), 3)}
    )
    record = UnsupervisedRecord(place / analysis_folder.RECORD, int(place.name))
    try:
        with inside(package):
            value = run_analysis(package, place, asked, script=script, function=lambda: function)
    except BaseException as error:
        record.end("failed", "exception", error=error)
        raise
    record.end("succeeded", "finished")
    return value


def _script(function: AnalysisFunction, place: Path) -> dict[str, Any]:
    """Where the function is from; its source, where it has one, is kept beside the result."""
    name = getattr(function, "__qualname__", type(function).__qualname__)
    try:
        file = inspect.getsourcefile(function) or ""
        source = textwrap.dedent(inspect.getsource(function)).encode()
    except (OSError, TypeError):  # typed at a prompt, or no plain function
        return {"path": f"{getattr(function, '__module__', '')}:{name}", "sha256": None}
    durable.write(place / analysis_folder.SCRIPT, source)
    return {"path": f"{file}:{name}", "sha256": hashlib.sha256(source).hexdigest()}
