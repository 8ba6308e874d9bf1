"""Runs over HTTP: begin, go on, list, look at, follow, stop."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta

from roost.base.errors import Refused, UsageError
from roost.operations.lifecycle.continue_ import ContinueRequest
from roost.operations.lifecycle.new_project import new_project
from roost.operations.queue import task_control
from roost.operations.queue.new_tasks import NewTasks
from roost.operations.queue.submit import SubmitRequest, submit, submit_continue
from roost.operations.queue.submit_command import submit_command
from roost.operations.reading.list_packages import entries
from roost.operations.reading.search import Found, search
from roost.operations.reading.show import CheckpointShown, Shown, show
from roost.operations.responses import Entry, LogPage, OrderedRun, Project, Queued, Run, RunPage, Submitted
from roost.package.package import PackageFolder
from roost.serve.http.route import Asked, Content, Route, Stream
from roost.serve.routes import event_streams, run_files, served_packages, task_resources
from roost.serve.routes.task_resources import Resources

RunId = Annotated[str, Meta(pattern=r"^[0-9a-f]{8}-[0-9a-f]{16}$")]
Text = Annotated[str, Meta(max_length=4096)]
Line = Annotated[str, Meta(max_length=1000)]
Offset = Annotated[int, Meta(ge=0, le=2**62)]
Lines = Annotated[tuple[Line, ...], Meta(max_length=1000)]
MOST_ROWS = 1000


class OfRun(Asked, frozen=True, kw_only=True):
    """One run."""

    run: RunId


class ListRuns(Asked, frozen=True, kw_only=True):
    """Which runs."""

    query: Text = ""
    """As of ``roost ls``: ``status:running lr<1e-3 sort:-valid/accuracy``."""
    offset: Offset = 0
    limit: Annotated[int, Meta(ge=1, le=MOST_ROWS)] = 100


class Submit(Resources, frozen=True, kw_only=True):
    """A training, or a sweep of several."""

    config: Annotated[str, Meta(min_length=1, max_length=4096)]
    """Its absolute path."""
    tuning: Text | None = None
    """The path of a second config, above the first."""
    overrides: Lines = ()
    """As typed after ``roost submit CONFIG``."""
    description: Line | None = None
    name: Line | None = None


class SubmitCommand(Resources, frozen=True, kw_only=True):
    """Any command."""

    command: Annotated[tuple[Text, ...], Meta(min_length=1, max_length=1000)]
    folder: Annotated[str, Meta(min_length=1, max_length=4096)]
    """Where it runs: an absolute path; its package comes into ``runs`` there."""
    description: Line | None = None
    name: Line | None = None


class Continue(Resources, frozen=True, kw_only=True):
    """The next session of a run."""

    run: RunId
    checkpoint: Annotated[int, Meta(ge=0, le=2**62)] | None = None
    overrides: Lines = ()
    description: Line | None = None
    force: bool = False


class Stop(Asked, frozen=True, kw_only=True):
    """How a run ends."""

    run: RunId
    now: bool = False
    """At once, and not after it has saved."""


class NewProject(Asked, frozen=True, kw_only=True):
    """A folder for a new project."""

    folder: Annotated[str, Meta(min_length=1, max_length=4096)]
    template: Line = "digits"


def _list(asked: ListRuns) -> RunPage:
    found = [Found(folder, *one) for folder in served_packages.folders() for one in entries(folder).items()]
    found.sort(key=lambda one: (one.entry.row.started or 0.0, one.name), reverse=True)
    found = search(found, asked.query)
    runs = [
        Run(served_packages.id_in(one.folder, one.name), str(one.folder / one.name), one.entry.row)
        for one in found[asked.offset : asked.offset + asked.limit]
    ]
    return RunPage(len(found), runs)


def _show(asked: OfRun) -> Shown:
    return show(served_packages.path_of(asked.run))


def _checkpoints(asked: OfRun) -> list[CheckpointShown]:
    return show(served_packages.path_of(asked.run)).checkpoints


def _submit(asked: Submit) -> Submitted:
    request = SubmitRequest(
        config=task_resources.absolute(asked.config, "config"),
        tuning=task_resources.absolute(asked.tuning, "tuning") if asked.tuning is not None else None,
        overrides=[*asked.overrides, *task_resources.limit(asked)],
        description=asked.description,
        name=asked.name,
        options=task_resources.of(asked),
        command=["POST", "/api/v1/runs"],
    )
    return _queued(submit(request))


def _command(asked: SubmitCommand) -> Submitted:
    folder = task_resources.absolute(asked.folder, "folder")
    if not folder.is_dir():
        raise UsageError("there is no such folder", setting="folder", received=asked.folder)
    wanted = task_resources.of(asked)
    return _queued(
        submit_command(asked.command, wanted, name=asked.name, description=asked.description, folder=folder)
    )


def _continue(asked: Continue) -> Submitted:
    request = ContinueRequest(
        package=served_packages.path_of(asked.run),
        checkpoint=asked.checkpoint,
        overrides=[*asked.overrides, *task_resources.limit(asked)],
        description=asked.description,
        force=asked.force,
        command=["POST", f"/api/v1/runs/{asked.run}/continue"],
    )
    return _queued(submit_continue(request, task_resources.of(asked)))


def _queued(found: NewTasks) -> Submitted:
    queued = [
        Queued(task.id, served_packages.id_of(task.package), task.name, task.package) for task in found.tasks
    ]
    return Submitted(queued, found.tasks[0].sweep, list(found.notes))


def _stop(asked: Stop) -> OrderedRun:
    path = served_packages.path_of(asked.run)
    with contextlib.closing(task_control.stop_all([path], now=asked.now)) as told:  # type: ignore[type-var]
        first = next(told)
    if first.task is None and not getattr(first.event, "was_running", True):
        raise Refused("the run does not run, and waits for nothing", received=str(path))
    return OrderedRun(asked.run)


def _project(asked: NewProject) -> Project:
    made = new_project(task_resources.absolute(asked.folder, "folder"), template=asked.template)
    return Project(str(made.path), made.files)


def _log(asked: event_streams.Log) -> LogPage:
    return event_streams.page(PackageFolder.open(served_packages.path_of(asked.run)), asked)


def _follow_log(asked: event_streams.FollowLog) -> Stream:
    return event_streams.Output(served_packages.path_of(asked.run), asked)


def _files(asked: OfRun) -> list[Entry]:
    return run_files.listed(served_packages.path_of(asked.run))


def _file(asked: run_files.Named) -> Content:
    return run_files.opened(served_packages.path_of(asked.run), asked.path)


_RUN = "/runs/{run}"
ROUTES: Sequence[Route] = (
    Route(name="list_runs", path="/runs", summary="The runs that a query means, the newest first.",
          asked=ListRuns, answer=RunPage, run=_list),
    Route(name="submit", method="POST", path="/runs", summary="Queue a training, or a sweep.", asked=Submit,
          answer=Submitted, run=_submit, status=201),
    Route(name="submit_command", method="POST", path="/commands", summary="Queue a command.",
          asked=SubmitCommand, answer=Submitted, run=_command, status=201),
    Route(name="show_run", path=_RUN, summary="All that is known of a run.", asked=OfRun, answer=Shown,
          run=_show),
    Route(name="continue", method="POST", path=f"{_RUN}/continue", summary="Queue its next session.",
          asked=Continue, answer=Submitted, run=_continue, status=201),
    Route(name="stop_run", method="POST", path=f"{_RUN}/stop", summary="Ask it to save and end.", asked=Stop,
          answer=OrderedRun, run=_stop, status=202),
    Route(name="checkpoints", path=f"{_RUN}/checkpoints", summary="Its checkpoints.", asked=OfRun,
          answer=list[CheckpointShown], run=_checkpoints),
    Route(name="read_log", path=f"{_RUN}/log", summary="What it printed, from an offset on.",
          asked=event_streams.Log, answer=LogPage, run=_log),
    Route(name="follow_log", path=f"{_RUN}/log/follow", summary="What it prints, as it comes.",
          asked=event_streams.FollowLog, answer=Stream, run=_follow_log),
    Route(name="list_files", path=f"{_RUN}/files", summary="Its files.", asked=OfRun,
          answer=list[Entry], run=_files),
    Route(name="read_file", path=f"{_RUN}/files/{{path:path}}", summary="One of its files.",
          asked=run_files.Named, answer=Content, run=_file),
    Route(name="new_project", method="POST", path="/projects", summary="Make a project from a template.",
          asked=NewProject, answer=Project, run=_project, status=201),
)  # fmt: skip
