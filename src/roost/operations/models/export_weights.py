"""``export --weights``: the weights of a package as a plain file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from roost.analysis import analysis_folder, preconditions
from roost.base.errors import NotFound, Refused, UsageError
from roost.operations.reading import package_schema
from roost.operations.sessions.package_worker import select_checkpoints, worker_on_package
from roost.operations.sessions.running_session import RunningSession
from roost.package import sessions
from roost.package.sessions import Session
from roost.supervisor.guard_start import GuardProcess

FILE_ENDINGS = (".pt", ".pth", ".safetensors")


@dataclass(frozen=True, kw_only=True)
class ExportWeightsRequest:
    """What is asked."""

    package: Path
    output: Path
    """Its ending tells the format: .pt and .pth for `torch.load`, or .safetensors."""
    checkpoint: str | None = None
    """``last``, ``best`` or an id; None: ``last``."""
    average: str | None = None
    """``last:K`` or ``best:K``: the mean of so many checkpoints."""
    monitor: str | None = None
    """What ``best`` goes by; None: the first rule of ``checkpoint.best``."""
    mode: str | None = None
    averaged: str | None = None
    """The weights that this average had reached, instead of those that were trained."""
    prefix: str | None = None
    """Takes the weights whose names begin so alone, without it."""
    overwrite: bool = False


@dataclass(frozen=True, kw_only=True)
class ExportedWeights:
    """What came of it."""

    path: str
    state: str
    exit_code: int
    error: str | None
    """In one line."""
    package: str
    checkpoints: list[dict[str, Any]]
    """id, step and epoch of each whose weights these are, and the sha256 of its file of weights."""
    averaged: str | None
    prefix: str | None
    bytes: int
    sha256: str | None
    """Of the file."""
    tensors: int
    """Names in the file."""
    numbers: int
    """In them; of tied ones once."""
    tied: dict[str, str]
    """Names of a tensor that has another name, too."""
    left_out: list[str]
    """Names without the prefix."""
    notes: list[str] = field(default_factory=list)
    """What a person should hear: checkpoints that were passed over, …"""


@dataclass(frozen=True)
class RunningExport:
    """An export that goes on."""

    running: RunningSession
    process: GuardProcess
    output: Path
    notes: list[str]
    """What a person should hear about it, one line each."""

    def outcome(self, ended: Session) -> ExportedWeights:
        """What came of it; to be asked before its block is left.

        Args:
            ended: Its session, with the supervisor's record.
        """
        code = (ended.record or {}).get("exit_code")
        found = sessions.load_json(self.running.record.parent / analysis_folder.RESULT) or {}
        empty: dict[str, Any] = {"package": self.running.package.name, "averaged": None, "prefix": None}
        empty |= {"checkpoints": [], "tied": {}, "left_out": [], "bytes": 0, "sha256": None}
        empty |= {"tensors": 0, "numbers": 0}
        return ExportedWeights(
            path=package_schema.printable(str(self.output)),
            state=ended.state,
            exit_code=code if isinstance(code, int) else 1,
            error=ended.error,
            **{**empty, **found},
        )


@contextmanager
def export_weights(request: ExportWeightsRequest) -> Iterator[RunningExport]:
    """Writes the weights into a file, which stands whole or not at all. It needs neither the project nor its
    code, and takes no lock: the package's training may go on. It ends with the block.

    Raises:
        UsageError: The file's ending tells no format, or the words for the checkpoints mean nothing.
        NotFound: There is no such package, checkpoint or folder.
        CheckpointError: There are checkpoints, and none was written by roost.
        Refused: The file is there already, nothing can be written there, or the package has no Runner.
        RoostError: The supervisor did not start.
    """
    output = _checked_output(request.output, overwrite=request.overwrite)
    package = preconditions.open_with_runner(request.package)
    words = {name: getattr(request, name) for name in ("average", "monitor", "mode")}
    which, notes = select_checkpoints(package, request.checkpoint, **words)
    asked = {
        "kind": "export",
        "package": str(package.path),
        "chosen": which,
        "averaged": request.averaged,
        "prefix": request.prefix,
        "output": str(output),
        "overwrite": request.overwrite,
        "device": "cpu",
    }
    with worker_on_package(package, output.parent, asked, None, fix="name a file elsewhere") as started:
        yield RunningExport(started.running, started.process, output, notes)


def _checked_output(output: Path, *, overwrite: bool) -> Path:
    if output.suffix not in FILE_ENDINGS:
        fix = f"end it in {', '.join(FILE_ENDINGS)}"
        raise UsageError("the ending tells no format", setting="--weights", received=str(output), fix=fix)
    output = output.expanduser().absolute()
    if not output.parent.is_dir():
        raise NotFound(
            "there is no such folder", setting="--weights", received=str(output.parent), fix="make it first"
        )
    if output.is_dir():
        raise Refused("is a folder", setting="--weights", received=str(output), fix="name a file")
    if output.exists() and not overwrite:
        fix = "name another one, or replace it: --overwrite"
        raise Refused("the file is there already", setting="--weights", received=str(output), fix=fix)
    return output
