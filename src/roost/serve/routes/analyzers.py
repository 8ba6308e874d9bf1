"""The routes of analyzers: run a script, interrupt it, switch the checkpoint; lists and the output. The
output of other tasks that read a package has the same routes."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from roost.devices.resource_request import TaskName
from roost.lab.queue.task import Task
from roost.operations import resolve
from roost.operations.analyzers import script_call
from roost.operations.analyzers.call_results import (
    CallRow,
    CheckpointSwitch,
    ScriptCall,
    ScriptEntry,
    ScriptInterrupt,
)
from roost.operations.responses import LogPage
from roost.package.session_folder import SessionFolder
from roost.serve.http.route import EventStream, RequestParameters, Route
from roost.serve.routes import event_streams
from roost.serve.routes.event_streams import Cursor, LogStream, Offset, PageBytes
from roost.serve.routes.stream_end import is_task_over


class AnalyzerParameters(RequestParameters, frozen=True, kw_only=True):
    """An analyzer: the id of its task, the beginning of one, its label or its name."""

    task: TaskName


class RunScript(RequestParameters, frozen=True, kw_only=True):
    """A script for an analyzer."""

    task: TaskName
    script: Annotated[str, Meta(min_length=1, max_length=4096)]
    """Its name, or its absolute path, in one of the folders of the analyzer."""


class InterruptScript(RequestParameters, frozen=True, kw_only=True):
    """A script that an analyzer shall end."""

    task: TaskName
    analysis: Annotated[int, Meta(ge=1, le=2**62)] | None = None
    """The number of its analysis; nothing is interrupted if it has ended. None: the script or the switch of
    the checkpoint that runs, or else the first that waits."""


class SwitchCheckpoint(RequestParameters, frozen=True, kw_only=True):
    """Another checkpoint for an analyzer."""

    task: TaskName
    checkpoint: Annotated[int, Meta(ge=0, le=2**62)] | Literal["last", "best", "untrained"]


class ListCalls(RequestParameters, frozen=True, kw_only=True):
    """The calls of an analyzer."""

    task: TaskName
    since: Annotated[int, Meta(ge=0, le=2**62)] | None = None
    """The number of an analysis: calls before it are left out, unless they wait or run."""


class ReadOutput(RequestParameters, frozen=True, kw_only=True):
    """A part of the output of an analyzer, or of another task that reads a package."""

    task: TaskName
    offset: Offset = 0
    """Bytes from the beginning."""
    limit: PageBytes = 1 << 16
    """Bytes; at least one character of any length fits."""


class FollowOutput(RequestParameters, frozen=True, kw_only=True):
    """The output of an analyzer, or of another task that reads a package, from a cursor on."""

    task: TaskName
    cursor: Cursor = "0"
    """The id of the last piece received, or an offset in bytes."""


def _run_script(parameters: RunScript) -> ScriptCall:
    return script_call.run_script(parameters.task, parameters.script)


def _interrupt(parameters: InterruptScript) -> ScriptInterrupt:
    return script_call.interrupt_script(parameters.task, parameters.analysis)


def _switch(parameters: SwitchCheckpoint) -> CheckpointSwitch:
    return script_call.switch_checkpoint(parameters.task, parameters.checkpoint)


def _scripts(parameters: AnalyzerParameters) -> list[ScriptEntry]:
    return script_call.list_scripts(parameters.task)


def _calls(parameters: ListCalls) -> list[CallRow]:
    return script_call.list_calls(parameters.task, since=parameters.since)


def _find_reading_task(text: str) -> Task:
    """Returns a task that has an output of its own; that of others is the log of their run.

    Raises:
        NotFound: There is no such task.
        UsageError: The text is ambiguous, or names a training or a command.
    """
    task, *others = resolve.find_tasks(text)
    return task if task.session_folder and not others else script_call.find_analyzer(text)


def _output(parameters: ReadOutput) -> LogPage:
    task = _find_reading_task(parameters.task)
    path = SessionFolder(task.folder, Path(task.package)).output
    is_over = functools.partial(is_task_over, task.id)
    return event_streams.read_page(path, parameters.offset, parameters.limit, is_over)


def _follow(parameters: FollowOutput) -> EventStream:
    task = _find_reading_task(parameters.task)
    folder = SessionFolder(task.folder, Path(task.package))
    is_over = functools.partial(is_task_over, task.id)
    return LogStream(folder, folder.output, parameters.cursor, is_over)


_ANALYZER = "/analyzers/{task:path}"
ROUTES: Sequence[Route] = (
    Route(name="run_script", method="POST", path=f"{_ANALYZER}/run", summary="Run a script in an analyzer.",
          parameters=RunScript, answer=ScriptCall, run=_run_script, status=202),
    Route(name="interrupt_script", method="POST", path=f"{_ANALYZER}/interrupt",
          summary="Interrupt the script of an analyzer, or its switch of the checkpoint; it lives on.",
          parameters=InterruptScript, answer=ScriptInterrupt, run=_interrupt, status=202),
    Route(name="switch_checkpoint", method="POST", path=f"{_ANALYZER}/checkpoint",
          summary="Load another checkpoint into an analyzer.",
          parameters=SwitchCheckpoint, answer=CheckpointSwitch, run=_switch, status=202),
    Route(name="list_scripts", path=f"{_ANALYZER}/scripts", summary="The scripts that an analyzer may run.",
          parameters=AnalyzerParameters, answer=list[ScriptEntry], run=_scripts),
    Route(name="list_calls", path=f"{_ANALYZER}/calls",
          summary="The scripts that an analyzer has run, runs, or will run.",
          parameters=ListCalls, answer=list[CallRow], run=_calls),
    Route(name="read_output", path=f"{_ANALYZER}/output",
          summary="The output of an analyzer, from an offset on.",
          parameters=ReadOutput, answer=LogPage, run=_output),
    Route(name="follow_output", path=f"{_ANALYZER}/output/follow",
          summary="The output of an analyzer, as it is printed.",
          parameters=FollowOutput, answer=EventStream, run=_follow),
)  # fmt: skip
