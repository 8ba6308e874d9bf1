"""``show``: the details of one package, read without running its code."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

import msgspec

from roost.analysis import analysis_folder
from roost.analysis.analysis_folder import AnalysisSessionRequest
from roost.base import durable
from roost.base.errors import Refused
from roost.config.values import nested_values
from roost.operations.listing.package_row import PackageSummary
from roost.operations.listing.package_summary import summarize
from roost.operations.reading import determinism_summary, package_schema, system_details
from roost.operations.reading.determinism_summary import DeterminismSummary
from roost.operations.reading.forks import find_forks
from roost.operations.reading.system_details import SystemDetails
from roost.package import lineage, live_progress
from roost.package.checkpoints import checkpoint
from roost.package.dlnest import original_folder
from roost.package.dlnest.original_package import OriginalPackage
from roost.package.kinds import TASK_KINDS, PackageKind, TaskKind
from roost.package.lineage import ForkParent
from roost.package.package import PackageFolder
from roost.package.results import (
    black_box,
    initial_weights,
    predictions,
    skipped_steps,
    time_breakdown,
)
from roost.package.results.initial_weights import InitialWeights
from roost.package.results.predictions import PredictionMeta
from roost.package.results.skipped_steps import SkippedStep
from roost.package.results.time_breakdown import TimeBreakdown
from roost.package.resume import environment
from roost.package.sessions import Session

_TRACKS = {"fast": "ckpt_fast", "slow": "ckpt_slow", "held": "ckpt_consistent", "best": "ckpt_best"}


@dataclass(frozen=True)
class SessionDetails:
    """A session of the package."""

    number: int
    state: str
    exit_code: int | None
    reason: str | None
    error: str | None
    started: float | None
    seconds: float | None
    host: str | None
    pid: int | None
    """The pid of the supervisor, while it runs."""
    ranks: int
    """The world size, on all machines."""
    strategy: str
    """single, ddp or fsdp."""
    overrides: list[str]
    description: str | None
    peak_memory_mb: float | None
    warm: bool
    """Whether the worker was forked from a template process."""
    guard_lost: float | None
    """When the guard was killed, after which the session continued without one; Unix seconds."""
    deadline: float | None
    """By when the session must have ended; Unix seconds."""
    last_step: int | None
    """The step at which it will end, about, if it runs and the run does not finish in it."""
    system: SystemDetails | None
    """What its cards, its processes and the host did; None: not measured."""


@dataclass(frozen=True)
class CheckpointDetails:
    """A checkpoint as its manifest describes it. Only `verify` reads its tensors."""

    id: int
    step: int
    epoch: int
    reason: str
    tracks: list[str]
    newest: bool
    """Whether `continue` would load it."""
    left_behind: bool
    """Whether the run continued from an earlier checkpoint, so that this one is not in its lineage."""
    session: int
    time: float
    size_bytes: int
    metrics: Mapping[str, float | None]
    """In JSON a non-finite value is null."""


@dataclass(frozen=True)
class AnalysisDetails:
    """An analysis of the package by a script."""

    number: int
    state: str
    script: str
    """Its path at that time; the copy that ran is in `folder`."""
    checkpoint: int | None
    """The checkpoint whose weights were used; before it is known the requested one, if any."""
    untrained: bool
    started: float | None
    seconds: float | None
    error: str | None
    folder: str


@dataclass(frozen=True)
class PredictionDetails:
    """Predictions that are stored in the package."""

    number: int
    source: str
    checkpoint: int
    step: int
    averaged: str | None
    samples: int
    values: list[str]
    """The names of the values of each sample."""
    time: float
    folder: str


@dataclass(frozen=True)
class EvaluationDetails:
    """An evaluation of the package whose grid is decided."""

    name: str
    cells: int
    finished: int
    """The number of finished cells."""
    folder: str
    report: str | None
    """The report as a page; None before the last cell is finished."""


@dataclass(frozen=True)
class BlackBoxDetails:
    """The step that failed last, which `roost debug` replays."""

    step: int
    session: int
    error: str
    """In one line."""
    samples: list[int]
    """Indices in the training set."""
    folder: str


@dataclass(frozen=True)
class PackageDetails:
    """The details of one package."""

    path: str
    summary: PackageSummary
    command: str
    """The command line without quotes; texts that look like a credential are ``***``."""
    project: str | None
    source: str | None
    """Where the code of a program is from, as ``--from`` named it; None: the project's folder."""
    git_commit: str | None
    git_dirty: bool | None
    settings: dict[str, Any]
    """The effective settings: with the overrides of all sessions, and the devices and strategy of the
    newest."""
    defaults: list[str]
    """The dotted keys of ``settings`` that neither a config nor a command line has set."""
    determinism: DeterminismSummary | None
    """None until a worker has built the project."""
    sessions: list[SessionDetails]
    metrics: Mapping[str, float | None]
    """The newest value of each metric; in JSON a non-finite value is null."""
    records_damage: str | None
    """Which rows are evidently missing; None: none, as far as that is seen without `verify`."""
    media: dict[int, int]
    """The number of media files by step."""
    time: TimeBreakdown | None
    """The time of all rows, by what it was spent on."""
    skipped: list[SkippedStep]
    """Steps that were skipped because of an error or a non-finite value."""
    black_box: BlackBoxDetails | None
    """None if no session ended in a failed step."""
    began_with: list[InitialWeights]
    """The initial weights, of ``init_from``."""
    model: str | None
    """The file with the table of the model, if the run was started with ``--initialize``."""
    checkpoints: list[CheckpointDetails]
    set_aside: list[str]
    """Damaged checkpoints, which the run has renamed."""
    analyses: list[AnalysisDetails]
    predictions: list[PredictionDetails]
    evaluations: list[EvaluationDetails]
    inexact: list[str]
    left_out: list[dict[str, Any]]
    links: dict[str, str]
    rerun_of: dict[str, str] | None
    """The package whose run began again here: package, path, and code, which is today or package."""
    parent: ForkParent | None
    """The package and step from which it was forked, if it is a fork."""
    ancestors: list[ForkParent]
    """The parents of the parent, nearest first."""
    forks: list[PackageSummary]
    """The packages in the same folder that were forked from it."""
    output: str | None
    """The file with the output; None: there is none, as of a run of `roost.init`."""


def show(package: Path | str) -> PackageDetails:
    """Reads the details of a package.

    Raises:
        NotFound: There is no such package.
        Refused: DLNest's own programs wrote it; the message describes it.
        DamagedPackage: A file of it is not as roost writes it.
    """
    if original_folder.is_original(Path(package)):
        raise _original_error(OriginalPackage.open(package))
    opened = package_schema.open_checked(package)
    request, manifest = (
        package_schema.load(opened.path, "request.json"),
        package_schema.load(opened.path, "manifest.json"),
    )
    git = request.get("git") or {}
    ancestry = lineage.ancestry_of_request(request)
    found, columns = package_schema.sessions(opened.path), opened.records()
    settings = _settings(opened, found)
    return PackageDetails(
        path=package_schema.printable(str(opened.path)),
        summary=summarize(opened.path),
        command=_redact_command(request.get("command", [])),
        project=request.get("project"),
        source=request.get("source"),
        git_commit=git.get("commit"),
        git_dirty=git.get("dirty"),
        settings=settings,
        defaults=_defaults(opened.path, settings),
        determinism=determinism_summary.read(opened.path),
        sessions=[_session(opened.path, session) for session in found],
        metrics=columns.last(),
        records_damage=package_schema.records_damage(opened, columns.torn),
        media=_count_media(opened.path / "media"),
        time=time_breakdown.from_records(columns, after=ancestry[0].step if ancestry else 0),
        skipped=skipped_steps.read(opened.path / skipped_steps.NAME, columns.starts),
        black_box=_black_box(opened),
        began_with=_initial_weights(opened),
        model=package_schema.printable(str(opened.model_summary)) if opened.model_summary.is_file() else None,
        checkpoints=_checkpoints(opened),
        set_aside=sorted(path.name for path in opened.checkpoints.glob("*.corrupt*")),
        analyses=[_analysis(opened, one) for one in package_schema.analyses(opened.path)],
        predictions=[_prediction(opened, *one) for one in predictions.read_all(opened)],
        evaluations=_evaluations(opened.path),
        inexact=inexact_reasons(opened, found),
        left_out=manifest.get("left_out", []),
        links=manifest.get("links", {}),
        rerun_of=_rerun_of(request),
        parent=next(iter(ancestry), None),
        ancestors=ancestry[1:],
        forks=_forks(opened),
        output=package_schema.printable(str(opened.output)) if opened.output.is_file() else None,
    )


def _rerun_of(request: Mapping[str, Any]) -> dict[str, str] | None:
    found = request.get("rerun_of")
    names = ("package", "path", "code")
    if not isinstance(found, dict) or not all(isinstance(found.get(name), str) for name in names):
        return None
    return {name: package_schema.printable(found[name]) for name in names}


def _defaults(package: Path, settings: Mapping[str, Any]) -> list[str]:
    """Returns the keys that no layer has set when the run began, and no session since."""
    changed = nested_values.differences(package_schema.load(package, "args.json"), settings)
    origins = package_schema.load(package, "provenance.json")
    unset = {key for key, origin in origins.items() if origin == "default"}
    return sorted(unset - {one.key for one in changed})


def _settings(package: PackageFolder, found: Sequence[Session]) -> dict[str, Any]:
    """Returns the effective settings, with the devices and strategy of the newest training session, which
    options may have set."""
    settings = package_schema.settings(package)
    request = next((one.request for one in reversed(found) if "strategy" in one.request), None)
    if request is None:
        return settings
    given = {key: package_schema.printable(request[key]) for key in ("devices", "strategy") if key in request}
    if PackageKind.of(package.request) is PackageKind.DLNEST:
        section = settings.get("roost")
        return {**settings, "roost": {**(section if isinstance(section, dict) else {}), **given}}
    return {**settings, **given}


def _original_error(package: OriginalPackage) -> Refused:
    name = quote(str(package.path))
    return Refused(
        package.describe_content(),
        where=package.path,
        fix=f"it is read only: roost analyze {name} -s SCRIPT, or roost export {name} --weights FILE",
    )


def _forks(package: PackageFolder) -> list[PackageSummary]:
    try:
        return find_forks(package.path)
    except OSError:  # a folder that this user may not list
        return []


def _redact_command(command: Sequence[str]) -> str:
    """Returns the command line as one text without credentials, which may span several arguments."""
    parts = list(command)
    for at, option in enumerate(command[:-1]):
        if option.startswith("-") and environment.is_secret(option):
            parts[at + 1] = (
                "***"  # `--token VALUE`: alone, only a text with = or : is recognized as a credential
            )
    return environment.redact(" ".join(parts))


def _session(package: Path, session: Session) -> SessionDetails:
    record, request = session.recorded, session.request
    return SessionDetails(
        number=session.number,
        state=session.state_shown,
        exit_code=record.exit_code,
        reason=record.reason,
        error=session.error,
        started=record.started,
        seconds=record.seconds,
        host=record.host or request.host,
        pid=session.supervisor_pid,
        ranks=request.ranks * request.num_nodes,
        strategy=request.strategy,
        overrides=request.overrides,
        description=request.description,
        peak_memory_mb=record.peak_memory_mb,
        warm=record.warm is True,
        guard_lost=record.guard_lost,
        deadline=record.deadline,
        last_step=_last_step(package, session),
        system=system_details.of_session(package, session),
    )


def _last_step(package: Path, session: Session) -> int | None:
    deadline, started = session.recorded.deadline, session.recorded.started
    progress = live_progress.read(package / "progress")
    if session.state != "running" or deadline is None or started is None or progress is None:
        return None
    if progress.wall < started or not 0 < progress.fraction < 1:  # it is of the session before
        return None
    to_finish = progress.seconds * (1 / progress.fraction - 1)
    return live_progress.last_step(
        progress, seconds_to_finish=to_finish, seconds_to_end=deadline - time.time()
    )


def _black_box(package: PackageFolder) -> BlackBoxDetails | None:
    box = black_box.newest_box(package.blackbox)
    if box is None:
        return None
    step, session, error, samples = box.note.step, box.note.session, box.note.error, box.note.samples
    return BlackBoxDetails(step, session, error, samples, package_schema.printable(str(box.path)))


def _analysis(package: PackageFolder, analysis: Session) -> AnalysisDetails:
    record, request = analysis.recorded, AnalysisSessionRequest.from_json(analysis.request)
    place = package.path / analysis_folder.NAME / str(analysis.number)
    return AnalysisDetails(
        number=analysis.number,
        state=analysis.state,
        script=request.script["path"],
        checkpoint=_checkpoint_of_analysis(analysis_folder.read_result(place), request.checkpoint),
        untrained=request.untrained,
        started=record.started,
        seconds=record.seconds,
        error=analysis.error,
        folder=package_schema.printable(str(place)),
    )


def _prediction(package: PackageFolder, number: int, meta: PredictionMeta) -> PredictionDetails:
    return PredictionDetails(
        number=number,
        source=package_schema.printable(meta.source),
        checkpoint=meta.checkpoint,
        step=meta.step,
        averaged=meta.averaged,
        samples=meta.count,
        values=package_schema.printable(list(meta.values)),
        time=meta.created,
        folder=package_schema.printable(str(package.path / predictions.NAME / str(number))),
    )


def _evaluations(package: Path) -> list[EvaluationDetails]:
    if not (package / str(TASK_KINDS[TaskKind.EVALUATE].folder)).is_dir():
        return []
    from roost.package.results.evaluations import (
        evaluation_folder,  # with NumPy, which other packages need not wait for
    )

    found = []
    for folder in evaluation_folder.read_all(package):
        cells, report = folder.cells(), folder.path / evaluation_folder.REPORT
        one = EvaluationDetails(
            name=package_schema.printable(folder.name),
            cells=len(cells),
            finished=sum(cell.state == "finished" for cell in cells),
            folder=package_schema.printable(str(folder.path)),
            report=package_schema.printable(str(report)) if report.is_file() else None,
        )
        found.append(one)
    return found


def _checkpoint_of_analysis(result: dict[str, Any], requested: int | None) -> int | None:
    found = result.get("checkpoint")
    id = found.get("id") if isinstance(found, dict) else None
    return id if isinstance(id, int) else requested


def _initial_weights(package: PackageFolder) -> list[InitialWeights]:
    found: object = package_schema.printable(msgspec.to_builtins(initial_weights.read(package.path)))
    return msgspec.convert(found, list[InitialWeights])


def _count_media(folder: Path) -> dict[int, int]:
    if not folder.is_dir():
        return {}
    steps = sorted((int(one.name), one) for one in folder.iterdir() if one.name.isdecimal() and one.is_dir())
    found = {step: sum(not durable.is_staging(file.name) for file in one.iterdir()) for step, one in steps}
    return {step: number for step, number in found.items() if number}


def list_checkpoints(package: Path) -> list[CheckpointDetails]:
    """Returns the checkpoints of a package.

    Raises:
        NotFound: There is no such package.
        DamagedPackage: A file of it is not as roost writes it.
    """
    return _checkpoints(package_schema.open_checked(package))


def _checkpoints(package: PackageFolder) -> list[CheckpointDetails]:
    if not package.checkpoints.is_dir():
        return []
    derived = package.derived
    line = package.store().lineage()
    newest = line[-1].id if line else None
    on_line = {info.id for info in line}
    return [
        CheckpointDetails(
            id=info.id,
            step=info.step,
            epoch=info.epoch,
            reason=info.reason,
            tracks=[track for track, key in _TRACKS.items() if info.id in derived.get(key, [])],
            newest=info.id == newest,
            left_behind=info.id not in on_line,
            session=info.session,
            time=info.time,
            size_bytes=info.size_bytes,
            metrics=info.metrics,
        )
        for info in checkpoint.read_manifests(package.checkpoints)
    ]


def inexact_reasons(package: PackageFolder, found: list[Session]) -> list[str]:
    """Returns the reasons that the worker recorded with its checkpoints, and those of the resume gate."""
    reasons = list(package_schema.load(package.path, "_package.json").get("inexact", []))
    reasons += [reason for session in found for reason in session.request.inexact]
    return list(dict.fromkeys(reasons))
