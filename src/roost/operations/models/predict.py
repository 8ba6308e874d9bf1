"""``predict``: runs the Runner of a package on data, with the weights of one checkpoint, while the caller
waits or as a task of the lab."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, NamedTuple

from roost.analysis import analysis_folder, preconditions
from roost.base import durable
from roost.base.errors import Refused, UsageError
from roost.base.text.typed_path import typed_path
from roost.config.run_settings import RunSettings
from roost.devices.resource_request import TaskOptions
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

if TYPE_CHECKING:
    from roost.operations.queue.new_tasks import NewTasks


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
    notes: list[str] = field(default_factory=list)
    """Notes for the user, one line each."""


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
        """Returns the result of the ended session. Must be called inside the ``with`` block of `predict`.

        Predictions that were stored are a success, also if the worker failed or was killed after that."""
        record = ended.recorded
        state, code, error, notes = ended.state, record.exit_code, ended.error, []
        scratch = self.running.record.parent
        result = sessions.load_json(scratch / analysis_folder.RESULT) or {}
        is_stored = bool(result) and not (scratch / predictions.UNFINISHED).exists()
        if is_stored and state != "succeeded":
            notes = [f"the predictions are complete; afterwards: {error}"]
            state, code, error = "succeeded", 0, None
        place = result["folder"] if is_stored else None
        return PredictOutcome(
            package=package_schema.printable(str(self.running.package)),
            folder=package_schema.printable(place) if place else None,
            state=state,
            exit_code=code if isinstance(code, int) else 1,
            reason=record.reason,
            error=error,
            seconds=record.seconds,
            meta=predictions.read(Path(place)) if place else None,
            notes=notes,
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
    ready = _check(request)
    output = _output_folder(ready.package, request.out)
    body = {**ready.body, "device": request.device, "output": str(output) if output is not None else None}
    session_cards = choose_one_card(request.device)
    parent = _make_parent(output.parent if output is not None else ready.package.path / predictions.NAME)
    with worker_on_package(
        ready.package, parent, body, ready.settings, fix=_FIX, session_cards=session_cards
    ) as started:
        yield RunningPrediction(started.running, started.process, [*ready.notes, *session_cards.notes])


def submit_predict(request: PredictRequest, options: TaskOptions) -> NewTasks:
    """Queues a prediction as a task of the lab, after the same checks. Its session folder becomes the
    prediction, ``predictions/<n>`` in the package.

    Args:
        request: As for `predict`; the device follows from the options, and ``out`` is not possible.
        options: The options of the task.

    Raises:
        UsageError: As for `predict`, or options contradict each other.
        Refused: As for `predict`; or the task could never start, or the lab's folder cannot be used.
        NotFound, CheckpointError, DamagedPackage, ConfigError, RoostError: As for `predict`.
    """
    if request.out is not None:
        fix = "leave it out: a queued prediction is stored in its package"
        raise UsageError("is not for a queued prediction", setting="-o", received=str(request.out), fix=fix)
    from roost.operations.queue.reading_task import (
        queue_reading_task,  # the queue, which `predict` does not use
    )

    ready = _check(request)
    body = {**ready.body, "output": None}
    queued = queue_reading_task(ready.package, TaskKind.PREDICT, body, options, ready.settings)
    return queued.with_notes(ready.notes)


class _CheckedRequest(NamedTuple):
    """A request that can be met, as far as is known before the project's code runs."""

    package: PackageFolder
    settings: RunSettings
    body: dict[str, Any]
    """For the worker, without device and output."""
    notes: Sequence[str]


def _check(request: PredictRequest) -> _CheckedRequest:
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
    body: dict[str, Any] = {
        "kind": TaskKind.PREDICT,
        "package": str(package.path),
        "source": request.source,
        "folder": str(Path.cwd()),
        "chosen": which,
        "averaged": request.averaged,
        "project": str(project),
        "batch_size": request.batch_size,
        "num_workers": request.num_workers,
        "limit": request.limit,
        "command": list(request.command),
    }
    return _CheckedRequest(package, settings, body, notes)


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
    place = typed_path(out).absolute()
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
