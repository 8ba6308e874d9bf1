"""``export --weights``: writes the weights of a package into one file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from roost.analysis import analysis_folder, preconditions
from roost.base.errors import NotFound, Refused, UsageError
from roost.base.text.typed_path import typed_path
from roost.operations import resolve
from roost.operations.reading import package_schema
from roost.operations.sessions.package_worker import select_checkpoints, worker_on_package
from roost.operations.sessions.running_session import RunningSession
from roost.package import sessions
from roost.package.kinds import TaskKind
from roost.package.package import PackageFolder
from roost.package.results import exports
from roost.package.sessions import Session
from roost.supervisor.guard_start import GuardProcess

FILE_ENDINGS = (".pt", ".pth", ".safetensors")


@dataclass(frozen=True, kw_only=True)
class ExportWeightsRequest:
    """A request to export weights."""

    package: Path
    output: Path
    """Its ending gives the format: .pt and .pth for `torch.load`, or .safetensors. A format alone, such as
    ``pt``, is the file ``weights.pt`` in the package's ``exports``."""
    checkpoint: str | None = None
    """``last``, ``best`` or an id; None: ``last``."""
    average: str | None = None
    """``last:K`` or ``best:K``: the mean of K checkpoints."""
    monitor: str | None = None
    """The metric of ``best``; None: that of the first rule of ``checkpoint.best``."""
    mode: str | None = None
    averaged: str | None = None
    """The name of an average whose weights are exported instead of the trained ones."""
    prefix: str | None = None
    """Export only weights whose names begin with this prefix, which is removed."""
    overwrite: bool = False


@dataclass(frozen=True, kw_only=True)
class ExportedWeights:
    """The result of an export."""

    path: str
    state: str
    exit_code: int
    error: str | None
    """In one line."""
    package: str
    checkpoints: list[dict[str, Any]]
    """id, step and epoch of each checkpoint that was used, and the SHA-256 of its file of weights."""
    averaged: str | None
    prefix: str | None
    bytes: int
    sha256: str | None
    """The digest of the file."""
    tensors: int
    """The number of names in the file."""
    numbers: int
    """The number of elements; tied tensors count once."""
    tied: dict[str, str]
    """Names of tensors that have another name too."""
    left_out: list[str]
    """Names that do not begin with the prefix."""
    notes: list[str] = field(default_factory=list)
    """Notes for the user, for example checkpoints that were skipped."""


@dataclass(frozen=True)
class RunningExport:
    """An export in progress."""

    running: RunningSession
    process: GuardProcess
    output: Path
    notes: list[str]
    """Notes for the user, one line each."""

    def outcome(self, ended: Session) -> ExportedWeights:
        """Returns the result of the ended session. Must be called inside the ``with`` block of
        `export_weights`.

        A file that was written is a success, also if the worker failed or was killed after that."""
        state, code, error = ended.state, ended.recorded.exit_code, ended.error
        place = self.running.record.parent
        found = sessions.load_json(place / analysis_folder.RESULT) or {}
        if found and (place / exports.UNFINISHED).exists():  # not renamed
            found = {}
        elif found and state != "succeeded":
            found["notes"] = [*found["notes"], f"the file is complete; afterwards: {error}"]
            state, code, error = "succeeded", 0, None
        empty: dict[str, Any] = {"package": self.running.package.name, "averaged": None, "prefix": None}
        empty |= {"checkpoints": [], "tied": {}, "left_out": [], "bytes": 0, "sha256": None}
        empty |= {"tensors": 0, "numbers": 0}
        return ExportedWeights(
            path=package_schema.printable(str(self.output)),
            state=state,
            exit_code=code if isinstance(code, int) else 1,
            error=error,
            **{**empty, **found},
        )


@contextmanager
def export_weights(request: ExportWeightsRequest) -> Iterator[RunningExport]:
    """Writes the weights into a file, atomically. Needs neither the project nor its code, and takes no lock:
    the training of the package may be running. The worker ends with the ``with`` block.

    Raises:
        UsageError: The ending of the file is no known format, or the choice of checkpoints is not valid.
        NotFound: There is no such package, checkpoint or folder.
        CheckpointError: There are checkpoints, but roost has written none of them.
        Refused: The file exists already, cannot be written, or the package has no Runner; or the file would
            be in a package that a newer roost has written, or that is in the trash.
        RoostError: The supervisor did not start.
    """
    package = preconditions.open_with_runner(resolve.find_package(request.package))
    output = _checked_output(request.output, package, overwrite=request.overwrite)
    criteria = {name: getattr(request, name) for name in ("average", "monitor", "mode")}
    which, notes = select_checkpoints(package, request.checkpoint, **criteria)
    body = {
        "kind": TaskKind.EXPORT,
        "package": str(package.path),
        "chosen": which,
        "averaged": request.averaged,
        "prefix": request.prefix,
        "output": str(output),
        "overwrite": request.overwrite,
        "device": "cpu",
    }
    with worker_on_package(package, output.parent, body, None, fix="name a file elsewhere") as started:
        yield RunningExport(started.running, started.process, output, notes)


def _checked_output(output: Path, package: PackageFolder, *, overwrite: bool) -> Path:
    if f".{output}" in FILE_ENDINGS:
        package_schema.require_changeable(package.path)
        name = f"weights.{output}"
        output = exports.export_path(package, name, fix=f"name the file: --weights {name}")
    if output.suffix not in FILE_ENDINGS:
        fix = f"end the name in {', '.join(FILE_ENDINGS)}"
        raise UsageError("the ending is no known format", setting="--weights", received=str(output), fix=fix)
    output = typed_path(output).absolute()
    if not output.parent.is_dir():
        raise NotFound(
            "there is no such folder", setting="--weights", received=str(output.parent), fix="create it first"
        )
    if output.is_dir():
        raise Refused("is a folder", setting="--weights", received=str(output), fix="name a file")
    if output.exists() and not overwrite:
        fix = "name another one, or replace it: --overwrite"
        raise Refused("the file exists already", setting="--weights", received=str(output), fix=fix)
    return output
