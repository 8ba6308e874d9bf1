"""``predict``: runs a package's Runner over data, with the weights of one checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roost.analysis import analysis_folder, preconditions
from roost.base import durable
from roost.base.errors import Refused, UsageError
from roost.operations.reading import package_schema
from roost.operations.sessions.foreground_lease import choose_one_card
from roost.operations.sessions.package_worker import select_checkpoints, worker_on_package
from roost.operations.sessions.running_session import RunningSession
from roost.package import live_progress, sessions
from roost.package.package import PackageFolder
from roost.package.results import predictions
from roost.package.results.predictions import PredictionMeta
from roost.package.sessions import Session
from roost.supervisor.guard_start import GuardProcess


@dataclass(frozen=True, kw_only=True)
class PredictRequest:
    """What is asked."""

    package: Path
    source: str
    """The name of a set, what the project's `Dataset.predict` understands, or a .npy, .npz or .csv file."""
    checkpoint: str | None = None
    """``last``, ``best`` or an id; None: ``last``."""
    averaged: str | None = None
    """The weights that this average had reached, instead of those that were trained."""
    device: str = "auto"
    """auto, cpu or cuda."""
    project: Path | None = None
    """Where the project is now; None: where it was."""
    out: Path | None = None
    """The folder to be made; None: the next number below ``predictions`` in the package."""
    batch_size: int | None = None
    num_workers: int | None = None
    limit: int | None = None
    """The first so many samples; None: all."""
    command: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class PredictOutcome:
    """What came of it."""

    package: str
    folder: str | None
    """None where nothing was kept."""
    state: str
    exit_code: int
    reason: str | None
    error: str | None
    """In one line."""
    seconds: float | None
    meta: PredictionMeta | None


@dataclass(frozen=True)
class RunningPrediction:
    """A prediction that goes on."""

    running: RunningSession
    process: GuardProcess
    notes: list[str]
    """What a person should hear about it, one line each."""

    def stage(self) -> str:
        """How far it is; empty before the first batch."""
        seen = live_progress.read(self.running.record.parent / "progress")
        if seen is None:
            return ""
        share = f" ({seen.fraction:.0%})" if seen.fraction else ""
        return f"{seen.samples:,} samples{share}, {seen.samples_per_second:,.0f} per second"

    def outcome(self, ended: Session) -> PredictOutcome:
        """What came of it; to be asked before its block is left.

        Args:
            ended: Its session, with the supervisor's record.
        """
        record = ended.record or {}
        code = record.get("exit_code")
        result = sessions.load_json(self.running.record.parent / analysis_folder.RESULT) or {}
        place = result.get("folder")
        return PredictOutcome(
            package=package_schema.printable(str(self.running.package)),
            folder=package_schema.printable(place) if place else None,
            state=ended.state,
            exit_code=code if isinstance(code, int) else 1,
            reason=record.get("reason"),
            error=ended.error,
            seconds=record.get("seconds"),
            meta=predictions.read(Path(place)) if place else None,
        )


@contextmanager
def predict(request: PredictRequest) -> Iterator[RunningPrediction]:
    """Starts a prediction. What it gives stands in its folder whole or not at all. It takes no lock: the
    package's training may go on. It ends with the block, and when this process is gone.

    Raises:
        NotFound: There is no such package, checkpoint or project.
        UsageError: A number is below 1, or the words for the checkpoint mean nothing.
        CheckpointError: There are checkpoints, and none was written by roost.
        Refused: The folder is there already, or nothing can be written there; or the package has no Runner.
        DamagedPackage: A file of the package is not as roost writes it.
        ConfigError: The package's settings do not fit this version.
        Busy: Others hold all GPUs.
        RoostError: The supervisor did not start.
    """
    _check_numbers(request)
    package = preconditions.open_with_runner(
        request.package, by=lambda path: package_schema.open_checked(path, to_go_on=True)
    )
    project = preconditions.project_folder(package, request.project)
    which, notes = select_checkpoints(package, request.checkpoint)
    settings = package_schema.checked_settings(package, project)
    output = _output_folder(package, request.out)
    asked: dict[str, Any] = {
        "kind": "prediction",
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
    with worker_on_package(
        package, parent, asked, settings, fix=_FIX, session_cards=session_cards
    ) as started:
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
    """The folder to be made, absolute; None for the package's own next one."""
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
        said = error.strerror or error
        raise Refused(f"nothing can be written here: {said}", where=parent, fix=_FIX) from error
    return parent
