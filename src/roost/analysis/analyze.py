"""`roost.analyze`: an analysis in this process, for notebooks and programs."""

from __future__ import annotations

import hashlib
import inspect
import os
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from roost.analysis import folder, foreign, frames
from roost.analysis.perform import Asked, Function, perform
from roost.base import durable
from roost.base.errors import ContractError, NotFound
from roost.package import sessions
from roost.package.package import Package
from roost.project.inside import inside


def analyze(
    record_path: Path | str,
    function: Function,
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
        NotFound: There is no such package or checkpoint.
        CheckpointError: The checkpoint is damaged, or all are.
        Refused: The result cannot be stored there.
        Exception: Whatever the project's code or the function raises.
    """
    if not callable(function):
        raise ContractError("is no function", setting="function", received=function, fix="lambda self: ...")
    path = Path(record_path).expanduser()
    foreign.refuse_file(path)
    package = Package.open(path)
    if not untrained:
        foreign.check_checkpoints(package, checkpoint)
    if project is not None and not Path(project).is_dir():
        raise NotFound("there is no such folder", setting="project", received=str(project))
    place = folder.make(Path(out).absolute() if out is not None else package.path / folder.NAME)
    script = _script(function, place)
    where = str(Path(project).resolve()) if project is not None else str(package.project)
    asked = Asked(checkpoint, untrained, device, where)
    folder.write_request(place, {**asked._asdict(), "script": script, "created": round(time.time(), 3)})
    with _recorded(place), inside(package):
        return perform(package, place, asked, script=script, function=lambda: function)


def _script(function: Function, place: Path) -> dict[str, Any]:
    """Where the function is from; its source, where it has one, is kept beside the result."""
    name = getattr(function, "__qualname__", type(function).__qualname__)
    try:
        file = inspect.getsourcefile(function) or ""
        source = textwrap.dedent(inspect.getsource(function)).encode()
    except (OSError, TypeError):  # typed at a prompt, or no plain function
        return {"path": f"{getattr(function, '__module__', '')}:{name}", "sha256": None}
    durable.write(place / folder.SCRIPT, source)
    return {"path": f"{file}:{name}", "sha256": hashlib.sha256(source).hexdigest()}


@contextmanager
def _recorded(place: Path) -> Iterator[None]:
    """Writes the record that a supervisor would write."""
    began = time.monotonic()
    record: dict[str, Any] = {
        "format": 1,
        "session": int(place.name),
        "state": "running",
        **sessions.identity(),
        "worker_pid": os.getpid(),
        "started": round(time.time(), 3),
    }

    def end(state: str, exit_code: int, reason: str, error: str | None) -> None:
        record.update(ended=round(time.time(), 3), seconds=round(time.monotonic() - began, 3))
        record.update(state=state, exit_code=exit_code, reason=reason, error=error)
        folder.write_record(place, record)

    folder.write_record(place, record)
    try:
        yield
    except KeyboardInterrupt:
        end("stopped", 130, "interrupted", None)
        raise
    except BaseException as error:
        end("failed", 1, "exception", f"{type(error).__name__}: {frames.text(error)}")
        raise
    end("succeeded", 0, "finished", None)
