"""The lab's tasks over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import Meta

from roost.lab.queue.task import Task
from roost.operations.queue import task_control
from roost.operations.queue.list_tasks import list_tasks
from roost.operations.queue.why import TaskExplanation, why
from roost.operations.responses import AcceptedTasks, TaskPage
from roost.serve.http.route import RequestParameters, Route
from roost.serve.routes.task_resources import Priority, TaskName

State = Literal["pending", "starting", "running", "stopping", "succeeded", "failed", "stopped", "crashed"]
States = Annotated[tuple[State, ...], Meta(max_length=8)]


class ListTasks(RequestParameters, frozen=True, kw_only=True):
    """Which tasks."""

    all: bool = False
    """Those too that have ended long ago."""
    state: States = ()
    user: Annotated[str, Meta(max_length=255)] | None = None
    offset: Annotated[int, Meta(ge=0, le=2**62)] = 0
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class TaskReference(RequestParameters, frozen=True, kw_only=True):
    """A task: its id, the beginning of one, a name; or a sweep."""

    task: TaskName


class SetPriority(RequestParameters, frozen=True, kw_only=True):
    """Another priority."""

    task: TaskName
    priority: Priority


def _list_tasks(asked: ListTasks) -> TaskPage:
    found = list_tasks(all_tasks=asked.all, states=asked.state, user=asked.user)
    return TaskPage(len(found), found[asked.offset : asked.offset + asked.limit])


def _why(asked: TaskReference) -> list[TaskExplanation]:
    return why(asked.task)


def _stop(asked: TaskReference) -> AcceptedTasks:
    return _to_ordered(task_control.request_stop(asked.task))


def _kill(asked: TaskReference) -> AcceptedTasks:
    return _to_ordered(task_control.request_stop(asked.task, now=True))


def _hold(asked: TaskReference) -> AcceptedTasks:
    return _to_ordered([one.task for one in task_control.change([asked.task], held=True)])


def _release(asked: TaskReference) -> AcceptedTasks:
    return _to_ordered([one.task for one in task_control.change([asked.task], held=False)])


def _set_priority(asked: SetPriority) -> AcceptedTasks:
    return _to_ordered([one.task for one in task_control.change([asked.task], priority=asked.priority)])


def _to_ordered(tasks: Sequence[Task]) -> AcceptedTasks:
    return AcceptedTasks([task.id for task in tasks])


_TASK = "/tasks/{task:path}"
ROUTES: Sequence[Route] = (
    Route(name="list_tasks", path="/tasks", summary="What waits, runs, and has ended.", asked=ListTasks,
          answer=TaskPage, run=_list_tasks),
    Route(name="why", path=f"{_TASK}/why", summary="Why it waits, or how it ended; what happened to it.",
          asked=TaskReference, answer=list[TaskExplanation], run=_why),
    Route(name="stop", method="POST", path=f"{_TASK}/stop", summary="Ask it to save and end.", asked=TaskReference,
          answer=AcceptedTasks, run=_stop, status=202),
    Route(name="kill", method="POST", path=f"{_TASK}/kill", summary="End it at once.", asked=TaskReference,
          answer=AcceptedTasks, run=_kill, status=202),
    Route(name="hold", method="POST", path=f"{_TASK}/hold", summary="Hold it back.", asked=TaskReference,
          answer=AcceptedTasks, run=_hold),
    Route(name="release", method="POST", path=f"{_TASK}/release", summary="Let it go.", asked=TaskReference,
          answer=AcceptedTasks, run=_release),
    Route(name="set_priority", method="POST", path=f"{_TASK}/priority", summary="Give it another priority.",
          asked=SetPriority, answer=AcceptedTasks, run=_set_priority),
)  # fmt: skip
