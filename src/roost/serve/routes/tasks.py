"""The routes of the lab's tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import Meta

from roost.devices.resource_request import Priority, TaskName
from roost.lab.queue.task import Task
from roost.operations.queue import task_control
from roost.operations.queue.list_tasks import count_hidden, list_tasks
from roost.operations.queue.task_control import ChangedTasks
from roost.operations.queue.why import why
from roost.operations.responses import AcceptedTasks, TaskPage
from roost.operations.task_results import TaskExplanation
from roost.serve.http.route import RequestParameters, Route

State = Literal["pending", "starting", "running", "stopping", "succeeded", "failed", "stopped", "crashed"]
States = Annotated[tuple[State, ...], Meta(max_length=8)]


class ListTasks(RequestParameters, frozen=True, kw_only=True):
    """A selection of tasks, and a page of it."""

    all: bool = False
    """Include the tasks that ended long ago."""
    state: States = ()
    user: Annotated[str, Meta(max_length=255)] | None = None
    offset: Annotated[int, Meta(ge=0, le=2**62)] = 0
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class TaskParameters(RequestParameters, frozen=True, kw_only=True):
    """A task: its id, the beginning of one, its name, or the name of a sweep."""

    task: TaskName


class SetPriority(RequestParameters, frozen=True, kw_only=True):
    """The new priority of a task."""

    task: TaskName
    priority: Priority


def _list_tasks(parameters: ListTasks) -> TaskPage:
    found = list_tasks(all_tasks=parameters.all, states=parameters.state, user=parameters.user)
    is_part = found and not parameters.all and not parameters.state
    left_out = count_hidden(found, parameters.user)[1] if is_part else 0
    return TaskPage(len(found), found[parameters.offset : parameters.offset + parameters.limit], left_out)


def _why(parameters: TaskParameters) -> list[TaskExplanation]:
    return why(parameters.task)


def _stop(parameters: TaskParameters) -> AcceptedTasks:
    return _to_references(task_control.request_stop(parameters.task))


def _kill(parameters: TaskParameters) -> AcceptedTasks:
    return _to_references(task_control.request_stop(parameters.task, now=True))


def _hold(parameters: TaskParameters) -> AcceptedTasks:
    return _to_changed(task_control.change([parameters.task], held=True))


def _release(parameters: TaskParameters) -> AcceptedTasks:
    return _to_changed(task_control.change([parameters.task], held=False))


def _set_priority(parameters: SetPriority) -> AcceptedTasks:
    return _to_changed(task_control.change([parameters.task], priority=parameters.priority))


def _to_changed(found: ChangedTasks) -> AcceptedTasks:
    return AcceptedTasks([one.task.id for one in found.changes], list(found.notes))


def _to_references(tasks: Sequence[Task]) -> AcceptedTasks:
    return AcceptedTasks([task.id for task in tasks])


_TASK = "/tasks/{task:path}"
ROUTES: Sequence[Route] = (
    Route(name="list_tasks", path="/tasks", summary="The tasks that wait, run or have ended.",
          parameters=ListTasks, answer=TaskPage, run=_list_tasks),
    Route(name="why", path=f"{_TASK}/why", summary="Why a task waits, or how it ended; and its events.",
          parameters=TaskParameters, answer=list[TaskExplanation], run=_why),
    Route(name="stop", method="POST", path=f"{_TASK}/stop", summary="Ask a task to save and end.",
          parameters=TaskParameters, answer=AcceptedTasks, run=_stop, status=202),
    Route(name="kill", method="POST", path=f"{_TASK}/kill", summary="Kill a task.",
          parameters=TaskParameters, answer=AcceptedTasks, run=_kill, status=202),
    Route(name="hold", method="POST", path=f"{_TASK}/hold", summary="Hold a task: it does not start.",
          parameters=TaskParameters, answer=AcceptedTasks, run=_hold),
    Route(name="release", method="POST", path=f"{_TASK}/release", summary="Release a held task.",
          parameters=TaskParameters, answer=AcceptedTasks, run=_release),
    Route(name="set_priority", method="POST", path=f"{_TASK}/priority",
          summary="Change the priority of a task.",
          parameters=SetPriority, answer=AcceptedTasks, run=_set_priority),
)  # fmt: skip
