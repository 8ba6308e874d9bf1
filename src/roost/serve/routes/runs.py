"""The routes of runs: submit, continue, list, show, follow, stop; and of new projects."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from roost.base.errors import Refused, UsageError
from roost.operations import resolve
from roost.operations.analyzers.start_analyzer import AnalyzerRequest, start_analyzer
from roost.operations.comparing.comparison import PackageComparison
from roost.operations.evaluating.evaluate import submit_evaluate
from roost.operations.evaluating.evaluation_request import EvaluateRequest
from roost.operations.keeping import label_packages
from roost.operations.lifecycle.continue_ import ContinueRequest
from roost.operations.lifecycle.new_project import new_project
from roost.operations.listing.list_packages import entries
from roost.operations.listing.package_row import FoundPackage
from roost.operations.listing.package_summary import summarize
from roost.operations.listing.search import search
from roost.operations.models.predict import PredictRequest, submit_predict
from roost.operations.programs.program_package import TypedProgram
from roost.operations.programs.submit_program import submit_program
from roost.operations.queue import task_control
from roost.operations.queue.new_tasks import NewTasks
from roost.operations.queue.submit import SubmitRequest, submit, submit_continue
from roost.operations.reading.show import CheckpointDetails, PackageDetails, list_checkpoints, show
from roost.operations.responses import (
    AcceptedRun,
    FileEntry,
    ListedRun,
    LogPage,
    ProjectResponse,
    QueuedTask,
    RunPage,
    SubmitResponse,
)
from roost.package import labels, package_name
from roost.package.kinds import CELL_TEMPLATE
from roost.package.labels import Labels
from roost.package.package import PackageFolder
from roost.serve.http.request_command import request_command
from roost.serve.http.route import EventStream, FileContent, RequestParameters, Route
from roost.serve.routes import event_streams, run_files, served_packages, task_resources
from roost.serve.routes.task_resources import ResourceParameters

RunId = Annotated[str, Meta(pattern=r"^[0-9a-f]{8}-[0-9a-f]{16}$")]
Text = Annotated[str, Meta(max_length=4096)]
Line = Annotated[str, Meta(max_length=1000)]
Offset = Annotated[int, Meta(ge=0, le=2**62)]
Tags = Annotated[tuple[Line, ...], Meta(max_length=labels.MAX_TAGS)]
Lines = Annotated[tuple[Line, ...], Meta(max_length=1000)]
MAX_ROWS = 1000


class RunParameters(RequestParameters, frozen=True, kw_only=True):
    """A run."""

    run: RunId


class ListRuns(RequestParameters, frozen=True, kw_only=True):
    """A query for runs, and a page of its results."""

    query: Text = ""
    """As for ``roost ls``: ``status:running lr<1e-3 sort:-valid/accuracy``."""
    offset: Offset = 0
    limit: Annotated[int, Meta(ge=1, le=MAX_ROWS)] = 100


class CompareRuns(RequestParameters, frozen=True, kw_only=True):
    """Runs to compare."""

    run: Annotated[tuple[RunId, ...], Meta(min_length=2, max_length=100)]
    metric: Annotated[tuple[Line, ...], Meta(max_length=100)] = ()
    """Names or patterns of metrics; without any, all metrics are compared."""
    step: Offset | None = None
    """Compare the metrics at this step; without one, at the last that all runs have reached."""
    diff: bool = False
    """Also return the lines in which the code of two runs differs."""
    file: Annotated[tuple[Line, ...], Meta(max_length=100)] = ()
    """The lines of these files only, by path or pattern."""


class SubmitRun(ResourceParameters, frozen=True, kw_only=True):
    """A training, or a sweep of several."""

    config: Annotated[str, Meta(min_length=1, max_length=4096)]
    """The absolute path of the config."""
    project: Text | None = None
    """The absolute path of the project's folder, if it is not the nearest one, from the config's folder
    upwards, that holds the files that the config names."""
    tuning: Text | None = None
    """The absolute path of a second config, whose settings win over those of the first."""
    overrides: Lines = ()
    """As after ``roost submit CONFIG``."""
    description: Line | None = None
    name: Line | None = None
    no_save: bool = False
    """Name the package NOSAVE, with a suffix if there is one; wins over ``use_description``."""
    use_description: bool = False
    """Name the package by the description, with a suffix if there is one."""


class OpenRun(RequestParameters, frozen=True, kw_only=True):
    """A package."""

    package: Annotated[str, Meta(min_length=1, max_length=4096)]
    """Its absolute path, or a task."""


class SubmitCommand(ResourceParameters, frozen=True, kw_only=True):
    """A command."""

    command: Annotated[tuple[Text, ...], Meta(min_length=1, max_length=1000)]
    folder: Annotated[str, Meta(min_length=1, max_length=4096)]
    """The absolute path of the folder of its code, which is copied; its package is created in ``runs``
    there."""
    in_place: bool = False
    """Run it in the folder, without a copy."""
    source: Text | None = None
    """Other code: a folder, an archive, or git+URL@commit."""
    metrics: Lines = ()
    """NAME=REGEX, for metrics in its output."""
    resume_with: Line | None = None
    """Arguments that are added from the second session on, such as ``--resume {checkpoint}``."""
    checkpoint_pattern: Line | None = None
    """The names of its checkpoints, or the ends of their paths, such as ``last*.pt``."""
    stage: Lines = ()
    """Archives that are unpacked to a local disk before it starts: absolute paths, or URLs."""
    description: Line | None = None
    name: Line | None = None


class ContinueRun(ResourceParameters, frozen=True, kw_only=True):
    """The next session of a run."""

    run: RunId
    checkpoint: Annotated[int, Meta(ge=0, le=2**62)] | Literal["last", "best"] | None = None
    overrides: Lines = ()
    description: Line | None = None
    force: bool = False
    trust: bool = False


class PredictRun(ResourceParameters, frozen=True, kw_only=True):
    """A prediction of a run."""

    run: RunId
    source: Annotated[str, Meta(min_length=1, max_length=4096)]
    """The name of a set, or the absolute path of data for the project's Dataset."""
    checkpoint: Annotated[int, Meta(ge=0, le=2**62)] | Literal["last", "best"] | None = None
    averaged: Line | None = None
    """The name of an average whose weights are used."""
    batch_size: Annotated[int, Meta(ge=1, le=2**31)] | None = None
    num_workers: Annotated[int, Meta(ge=0, le=4096)] | None = None
    limit: Annotated[int, Meta(ge=1, le=2**62)] | None = None
    """Only so many samples, from the first on."""


class EvaluateRun(ResourceParameters, frozen=True, kw_only=True):
    """An evaluation of a run."""

    run: RunId
    checkpoints: Line | None = None
    """Selectors, separated by commas: ``best``, ``last``, an id, ``average(best:10)``, a kept average."""
    weights: Text | None = None
    """The absolute path of a file with weights."""
    variants: Text | None = None
    """The absolute path of a file of variants."""
    datasets: Lines = ()
    """The names of sets; without any, all test sets."""
    name: Line | None = None
    """The name of the evaluation; one that was asked the same goes on."""
    template: Line = CELL_TEMPLATE
    """The folder of each cell below that of the evaluation."""
    on_step_error: Literal["raise", "skip"] = "raise"
    overrides: Lines = ()
    """Settings of the evaluation alone, as ``a.b=c``."""
    project: Text | None = None
    """The absolute path of the project's folder now, if it was moved."""


class AnalyzeRun(ResourceParameters, frozen=True, kw_only=True):
    """An analyzer of a run."""

    run: RunId
    checkpoint: Annotated[int, Meta(ge=0, le=2**62)] | Literal["last", "best"] | None = None
    untrained: bool = False
    """Use the weights as the Runner builds them."""
    trust: bool = False
    scripts: Text | None = None
    """The absolute path of a further script, or folder of scripts, that it may run."""
    project: Text | None = None
    """The absolute path of the project's folder now, if it was moved."""


class StopRun(RequestParameters, frozen=True, kw_only=True):
    """A run to stop."""

    run: RunId
    now: bool = False
    """Kill it at once, without a checkpoint."""


class LabelRun(RequestParameters, frozen=True, kw_only=True):
    """The new labels of a run; what is left out is unchanged."""

    run: RunId
    add_tags: Tags = ()
    remove_tags: Tags = ()
    note: Annotated[str, Meta(max_length=labels.MAX_NOTE_BYTES)] | None = None
    """An empty one removes the note."""
    starred: bool | None = None


class NewProject(RequestParameters, frozen=True, kw_only=True):
    """A folder for a new project."""

    folder: Annotated[str, Meta(min_length=1, max_length=4096)]
    template: Line = "digits"


def _list_runs(parameters: ListRuns) -> RunPage:
    found = [
        FoundPackage(folder, *one) for folder in served_packages.folders() for one in entries(folder).items()
    ]
    found.sort(key=lambda one: (one.entry.summary.started or 0.0, one.name), reverse=True)
    found = search(found, parameters.query)
    runs = [
        ListedRun(
            served_packages.run_id_in(one.folder, one.name), str(one.folder / one.name), one.entry.summary
        )
        for one in found[parameters.offset : parameters.offset + parameters.limit]
    ]
    return RunPage(len(found), runs)


def _open(parameters: OpenRun) -> ListedRun:
    if "/" in parameters.package:
        task_resources.absolute_path(parameters.package, "package")
    path = resolve.find_package(parameters.package).resolve()
    if not resolve.is_package(path):  # one that DLNest itself wrote
        fix = "`roost continue` and `roost analyze` take it"
        raise Refused("a server shows only packages of roost", received=parameters.package, fix=fix)
    return ListedRun(served_packages.serve_package(path), str(path), summarize(path))


def _show(parameters: RunParameters) -> PackageDetails:
    return show(served_packages.package_path(parameters.run))


def _compare(parameters: CompareRuns) -> PackageComparison:
    from roost.operations.comparing.compare import compare  # NumPy: 25 MB, which most servers save

    return compare(
        [served_packages.package_path(run) for run in parameters.run],
        metrics=parameters.metric,
        step=parameters.step,
        diff=parameters.file if parameters.diff or parameters.file else None,
    )


def _checkpoints(parameters: RunParameters) -> list[CheckpointDetails]:
    return list_checkpoints(served_packages.package_path(parameters.run))


def _submit(parameters: SubmitRun) -> SubmitResponse:
    request = SubmitRequest(
        config=task_resources.absolute_path(parameters.config, "config"),
        project=_optional_path(parameters.project, "project"),
        tuning=_optional_path(parameters.tuning, "tuning"),
        overrides=[*parameters.overrides, *task_resources.time_limit_override(parameters)],
        description=parameters.description,
        name=package_name.requested_name(
            parameters.name,
            parameters.description,
            no_save=parameters.no_save,
            use_description=parameters.use_description,
        ),
        with_suffix=parameters.no_save or parameters.use_description,
        options=parameters,
        command=request_command("POST", "/api/v1/runs"),
    )
    return _to_submitted(submit(request))


def _optional_path(text: str | None, field: str) -> Path | None:
    return None if text is None else task_resources.absolute_path(text, field)


def _submit_command(parameters: SubmitCommand) -> SubmitResponse:
    folder = task_resources.absolute_path(parameters.folder, "folder")
    if not folder.is_dir():
        raise UsageError("there is no such folder", setting="folder", received=parameters.folder)
    return _to_submitted(
        submit_program(
            TypedProgram(
                command=parameters.command,
                folder=folder,
                source=parameters.source,
                in_place=parameters.in_place,
                name=parameters.name,
                description=parameters.description,
                metrics=parameters.metrics,
                resume_with=parameters.resume_with,
                checkpoint_pattern=parameters.checkpoint_pattern,
                stage=parameters.stage,
            ),
            parameters,
        )
    )


def _continue(parameters: ContinueRun) -> SubmitResponse:
    request = ContinueRequest(
        package=served_packages.package_path(parameters.run),
        checkpoint=parameters.checkpoint,
        overrides=[*parameters.overrides, *task_resources.time_limit_override(parameters)],
        description=parameters.description,
        force=parameters.force,
        trust=parameters.trust,
        command=request_command("POST", f"/api/v1/runs/{parameters.run}/continue"),
    )
    return _to_submitted(submit_continue(request, parameters))


def _predict(parameters: PredictRun) -> SubmitResponse:
    given = parameters.checkpoint
    request = PredictRequest(
        package=served_packages.package_path(parameters.run),
        source=parameters.source,
        checkpoint=None if given is None else str(given),
        averaged=parameters.averaged,
        batch_size=parameters.batch_size,
        num_workers=parameters.num_workers,
        limit=parameters.limit,
        command=request_command("POST", f"/api/v1/runs/{parameters.run}/predict"),
    )
    return _to_submitted(submit_predict(request, parameters))


def _evaluate(parameters: EvaluateRun) -> SubmitResponse:
    request = EvaluateRequest(
        package=served_packages.package_path(parameters.run),
        checkpoints=parameters.checkpoints,
        weights=_optional_path(parameters.weights, "weights"),
        variants=_optional_path(parameters.variants, "variants"),
        datasets=parameters.datasets or None,
        name=parameters.name,
        template=parameters.template,
        on_step_error=parameters.on_step_error,
        overrides=parameters.overrides,
        project=_optional_path(parameters.project, "project"),
        command=["POST", f"/api/v1/runs/{parameters.run}/evaluate"],
    )
    return _to_submitted(submit_evaluate(request, parameters))


def _analyze(parameters: AnalyzeRun) -> SubmitResponse:
    request = AnalyzerRequest(
        package=served_packages.package_path(parameters.run),
        checkpoint=parameters.checkpoint,
        untrained=parameters.untrained,
        trust=parameters.trust,
        scripts=_optional_path(parameters.scripts, "scripts"),
        project=_optional_path(parameters.project, "project"),
        options=parameters,
        command=request_command("POST", f"/api/v1/runs/{parameters.run}/analyze"),
    )
    return _to_submitted(start_analyzer(request))


def _to_submitted(found: NewTasks) -> SubmitResponse:
    queued = [
        QueuedTask(task.id, served_packages.run_id(task.package), task.name, task.package, task.label)
        for task in found.tasks
    ]
    return SubmitResponse(queued, found.tasks[0].sweep, list(found.notes))


def _stop(parameters: StopRun) -> AcceptedRun:
    path = served_packages.package_path(parameters.run)
    with contextlib.closing(task_control.stop_all([path], now=parameters.now)) as results:  # type: ignore[type-var]
        first = next(results)
    if first.task is None and not getattr(first.event, "was_running", True):
        raise Refused("the run is not running and has no waiting task", received=str(path))
    return AcceptedRun(parameters.run)


def _label(parameters: LabelRun) -> Labels:
    path = served_packages.package_path(parameters.run)

    def change(old: Labels) -> Labels:
        tags = [one for one in (*old.tags, *parameters.add_tags) if one not in parameters.remove_tags]
        return Labels(
            tags=list(dict.fromkeys(tags)),
            note=old.note if parameters.note is None else parameters.note or None,
            starred=old.starred if parameters.starred is None else parameters.starred,
        )

    return label_packages.change([path], lambda one: labels.update(one, change))[0].labels


def _new_project(parameters: NewProject) -> ProjectResponse:
    made = new_project(
        task_resources.absolute_path(parameters.folder, "folder"), template=parameters.template
    )
    return ProjectResponse(str(made.path), made.files)


def _read_log(parameters: event_streams.ReadLog) -> LogPage:
    return event_streams.read_log(
        PackageFolder.open(served_packages.package_path(parameters.run)), parameters
    )


def _follow_log(parameters: event_streams.FollowLog) -> EventStream:
    return event_streams.follow_log(served_packages.package_path(parameters.run), parameters)


def _list_files(parameters: RunParameters) -> list[FileEntry]:
    return run_files.list_files(served_packages.package_path(parameters.run))


def _read_file(parameters: run_files.ReadFile) -> FileContent:
    return run_files.open_file(served_packages.package_path(parameters.run), parameters.path)


_RUN = "/runs/{run}"
ROUTES: Sequence[Route] = (
    Route(name="list_runs", path="/runs", summary="The runs that match a query, newest first.",
          parameters=ListRuns, answer=RunPage, run=_list_runs),
    Route(name="submit", method="POST", path="/runs", summary="Queue a training or a sweep.",
          parameters=SubmitRun, answer=SubmitResponse, run=_submit, status=201),
    Route(name="submit_command", method="POST", path="/commands", summary="Queue a command.",
          parameters=SubmitCommand, answer=SubmitResponse, run=_submit_command, status=201),
    Route(name="open_run", method="POST", path="/runs/open",
          summary="The run of a package or a task; the server shows its folder from now on.",
          parameters=OpenRun, answer=ListedRun, run=_open),
    Route(name="show_run", path=_RUN, summary="The details of a run.", parameters=RunParameters,
          answer=PackageDetails, run=_show),
    Route(name="compare", path="/comparison", summary="What differs between runs.",
          parameters=CompareRuns, answer=PackageComparison, run=_compare),
    Route(name="continue", method="POST", path=f"{_RUN}/continue", summary="Queue the next session of a run.",
          parameters=ContinueRun, answer=SubmitResponse, run=_continue, status=201),
    Route(name="predict", method="POST", path=f"{_RUN}/predict", summary="Queue a prediction of a run.",
          parameters=PredictRun, answer=SubmitResponse, run=_predict, status=201),
    Route(name="evaluate", method="POST", path=f"{_RUN}/evaluate",
          summary="Queue an evaluation of a run: checkpoints, variants and sets.",
          parameters=EvaluateRun, answer=SubmitResponse, run=_evaluate, status=201),
    Route(name="analyze", method="POST", path=f"{_RUN}/analyze",
          summary="Queue an analyzer, which loads a run once and runs scripts on it.",
          parameters=AnalyzeRun, answer=SubmitResponse, run=_analyze, status=201),
    Route(name="stop_run", method="POST", path=f"{_RUN}/stop", summary="Ask a run to save and end.",
          parameters=StopRun, answer=AcceptedRun, run=_stop, status=202),
    Route(name="label_run", method="POST", path=f"{_RUN}/labels",
          summary="Change the tags, note and star of a run.", parameters=LabelRun,
          answer=Labels, run=_label),
    Route(name="checkpoints", path=f"{_RUN}/checkpoints", summary="The checkpoints of a run.",
          parameters=RunParameters, answer=list[CheckpointDetails], run=_checkpoints),
    Route(name="read_log", path=f"{_RUN}/log", summary="The output of a run, from an offset on.",
          parameters=event_streams.ReadLog, answer=LogPage, run=_read_log),
    Route(name="follow_log", path=f"{_RUN}/log/follow", summary="The output of a run, as it is printed.",
          parameters=event_streams.FollowLog, answer=EventStream, run=_follow_log),
    Route(name="list_files", path=f"{_RUN}/files", summary="The files of a run.",
          parameters=RunParameters, answer=list[FileEntry], run=_list_files),
    Route(name="read_file", path=f"{_RUN}/files/{{path:path}}", summary="One file of a run.",
          parameters=run_files.ReadFile, answer=FileContent, run=_read_file),
    Route(name="new_project", method="POST", path="/projects", summary="Create a project from a template.",
          parameters=NewProject, answer=ProjectResponse, run=_new_project, status=201),
)  # fmt: skip
