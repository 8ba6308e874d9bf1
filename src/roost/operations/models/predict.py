"""``predict``: runs the Runner of a package on data, with the weights of one checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

from roost.analysis import analysis_folder, preconditions
from roost.base import durable
from roost.base.errors import Refused, UsageError
from roost.operations.reading import package_schema
from roost.operations.sessions.foreground_lease import choose_one_card
from roost.operations.sessions.package_worker import select_checkpoints, worker_on_package
from roost.operations.sessions.running_session import RunningSession
from roost.package import live_progress, sessions
from roost.package.kinds import TaskKind
from roost.package.package import PackageFolder
from roost.package.results import predictions
from roost.package.results.predictions import PredictionMeta
from roost.package.sessions import Session
from roost.supervisor.guard_start import GuardProcess


@dataclass(frozen=True, kw_only=True)
class PredictRequest:
    """A request to predict."""

    package: Path
    source: str
    """The name of a set, a source for the project's `Dataset.predict`, or a .npy, .npz or .csv file."""
    checkpoint: str | None = None
    """``last``, ``best`` or an id; None: ``last``."""
    averaged: str | None = None
    """The name of an average whose weights are used instead of the trained ones."""
    device: str = "auto"
    """auto, cpu, cuda, mps or xpu."""
    project: Path | None = None
    """The folder of the project now; None: its recorded folder."""
    out: Path | None = None
    """The new folder for the predictions; None: the next number below ``predictions`` in the package."""
    batch_size: int | None = None
    num_workers: int | None = None
    limit: int | None = None
    """The number of samples, from the first on; None: all."""
    command: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class PredictOutcome:
    """The result of a prediction."""

    package: str
    folder: str | None
    """None if no predictions were stored."""
    state: str
    exit_code: int
    reason: str | None
    error: str | None
    """In one line."""
    seconds: float | None
    meta: PredictionMeta | None


@dataclass(frozen=True)
class RunningPrediction:
    """A prediction in progress."""

    running: RunningSession
    process: GuardProcess
    notes: list[str]
    """Notes for the user, one line each."""

    def stage(self) -> str:
        """Returns the progress as text; empty before the first batch."""
        progress = live_progress.read(self.running.record.parent / "progress")
        if progress is None:
            return ""
        share = f" ({progress.fraction:.0%})" if progress.fraction else ""
        return f"{progress.samples:,} samples{share}, {progress.samples_per_second:,.0f} per second"

    def outcome(self, ended: Session) -> PredictOutcome:
        """Returns the result of the ended session. Must be called inside the ``with`` block of `predict`."""
        record = ended.recorded
        code = record.exit_code
        result = sessions.load_json(self.running.record.parent / analysis_folder.RESULT) or {}
        place = result.get("folder")
        return PredictOutcome(
            package=package_schema.printable(str(self.running.package)),
            folder=package_schema.printable(place) if place else None,
            state=ended.state,
            exit_code=code if isinstance(code, int) else 1,
            reason=record.reason,
            error=ended.error,
            seconds=record.seconds,
            meta=predictions.read(Path(place)) if place else None,
        )


@contextmanager
def predict(request: PredictRequest) -> Iterator[RunningPrediction]:
    """Starts a prediction. Its folder appears complete or not at all. It takes no lock: the training of the
    package may be running. The worker ends with the ``with`` block, or with this process.

    Raises:
        NotFound: There is no such package, checkpoint or project.
        UsageError: A number is too small, or the choice of the checkpoint is not valid.
        CheckpointError: There are checkpoints, but roost has written none of them.
        Refused: The folder exists already or cannot be written, or the package has no Runner.
        DamagedPackage: A file of the package is not as roost writes it.
        ConfigError: The package's settings do not fit this version.
        Busy: All GPUs are leased.
        RoostError: The supervisor did not start.
    """
    _check_numbers(request)
    package = preconditions.open_with_runner(
        request.package, by=lambda path: package_schema.open_checked(path, to_continue=True)
    )
    preconditions.require_native(
        package,
        cause="a runner of DLNest's contract has no predict()",
        fix=f"write a script that predicts: roost analyze {quote(str(package.path))} -s SCRIPT",
    )
    project = preconditions.project_folder(package, request.project)
    which, notes = select_checkpoints(package, request.checkpoint)
    settings = package_schema.checked_settings(package, project)
    output = _output_folder(package, request.out)
    body: dict[str, Any] = {
        "kind": TaskKind.PREDICT,
        "package": str(package.path),
        "source": request.source,
        "folder": str(Path.cwd()),
        "chosen": which,
        "averaged": request.averaged,
        "device": request.device,
        "project": str(project),
        "output": str(output) if output is not None else None,
        "batch_size": request.batch_size,
        "num_workers": request.num_workers,
        "limit": request.limit,
        "command": list(request.command),
    }
    session_cards = choose_one_card(request.device)
    parent = _make_parent(output.parent if output is not None else package.path / predictions.NAME)
    with worker_on_package(package, parent, body, settings, fix=_FIX, session_cards=session_cards) as started:
        yield RunningPrediction(started.running, started.process, [*notes, *session_cards.notes])


_FIX = "name another folder for it: -o DIR"
_LEAST_VALUES = {"batch_size": 1, "num_workers": 0, "limit": 1}


def _check_numbers(request: PredictRequest) -> None:
    for name, least in _LEAST_VALUES.items():
        given = getattr(request, name)
        if given is not None and given < least:
            option = f"--{name.replace('_', '-')}"
            raise UsageError("is too small", setting=option, received=given, fix=f"give {least} or more")


def _output_folder(package: PackageFolder, out: Path | None) -> Path | None:
    """Returns the new folder, absolute; None for the next one in the package."""
    if out is None:
        return None
    place = out.expanduser().absolute()
    if place.resolve().is_relative_to(package.path.resolve()):
        raise Refused(
            "predictions cannot be stored among the package's own files", where=place, fix="leave out -o"
        )
    if place.exists() or place.is_symlink():
        raise predictions.output_exists_error(place)
    return place


def _make_parent(parent: Path) -> Path:
    try:
        durable.make_folders(parent)
    except OSError as error:
        cause = error.strerror or error
        raise Refused(f"the folder cannot be written: {cause}", where=parent, fix=_FIX) from error
    return parent
