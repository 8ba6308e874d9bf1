"""The operations ``stop``, ``kill``, ``hold``, ``release`` and ``priority``: requests to tasks, and to
packages that run without the lab."""

from __future__ import annotations

import glob
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from roost.base.errors import NotFound, Refused, RoostError
from roost.base.system import state_folder
from roost.lab.background import daemon_presence
from roost.lab.queue import task_lookup
from roost.lab.queue.queue_store import QueueStore
from roost.lab.queue.task import ENDED, KILL, LIVE, STOP, Task
from roost.operations import lab, resolve
from roost.operations.lifecycle.stop import StopPending, StopResult, may_be_stopped, stop
from roost.operations.listing import named_packages
from roost.package import live_progress

_TICK_SECONDS = 0.05


@dataclass(frozen=True)
class StopProgress:
    """The progress of one stop request, or its result."""

    package: Path
    task: Task | None
    """The task as last read; None: a package that runs without the lab."""
    event: StopPending | StopResult

    @property
    def can_continue(self) -> bool:
        """Whether `roost continue` can resume the package: not a task that only reads it."""
        return self.task is None or self.task.traits.locks_package


def stop_all(named: Sequence[str | Path], *, now: bool = False) -> Iterator[StopProgress]:
    """Requests tasks and packages to save and end, then reports until all have ended.

    Args:
        named: Paths of packages, or tasks as `resolve.find_tasks` finds them. All are looked up before the
            first request is sent. If one of them names neither and they have a pattern or the operator of a
            query, those that run or wait of the packages that `named_packages.select_packages` finds.
        now: Kill them instead.

    Yields:
        `StopPending` several times a second for each that has not ended, and one `StopResult` for each.

    Raises:
        NotFound: A task or package does not exist.
        UsageError: A text fits several tasks.
        Refused: A named task has ended, or the daemon is of another version.
        RoostError: As for `stop`; or the request is stored, but the daemon that carries it out did not start.
    """
    tasks: dict[str, Task] = {}
    packages: list[Path] = []
    for path, found in _find_targets([*dict.fromkeys(map(str, named))]):
        tasks |= {task.id: task for task in found}
        packages += [] if path is None else [path]
    stops = [(path, stop(path, now=now)) for path in packages]
    started = [(path, events, next(events)) for path, events in stops]
    if tasks:
        yield from _stop_tasks(list(tasks.values()), KILL if now else STOP)
    for path, events, first in started:
        yield StopProgress(path, None, first)
        yield from (StopProgress(path, None, event) for event in events)


def request_stop(named: str, *, now: bool = False) -> list[Task]:
    """Requests a task, or all unended tasks of a sweep, to save and end, without waiting; returns these
    tasks. Arguments and errors as for `stop_all`, but a package that is no task is not found."""
    found = _unended(resolve.find_tasks(named), named)
    with closing(_stop_tasks(found, KILL if now else STOP)) as progress:
        next(progress)
    return found


class TaskChange(NamedTuple):
    """A change to one task."""

    task: Task
    """The task after the change."""
    unchanged: bool
    """Whether the task already was as requested."""


class ChangedTasks(NamedTuple):
    """The result of a change to tasks."""

    changes: Sequence[TaskChange]
    notes: Sequence[str] = ()
    """Notes for the user, one line each."""


def change(named: Sequence[str], *, held: bool | None = None, priority: int | None = None) -> ChangedTasks:
    """Holds or releases tasks, or changes their priority. A daemon that does not start is a note, as the
    change is made.

    Args:
        named: Tasks as `resolve.find_tasks` finds them. All are looked up before the first is changed.
        held: Whether to hold them; None: leave it.
        priority: Higher comes first; None: leave it.

    Raises:
        NotFound: A task does not exist.
        UsageError: A text fits several tasks.
        Refused: A task has ended, or the daemon is of another version; then none is changed.
    """
    tasks = {task.id: task for one in dict.fromkeys(named) for task in _unended(resolve.find_tasks(one), one)}
    _require_current_daemon()
    with lab.locked_queue() as store, store.transaction():
        changed = [_change_task(store, id, held, priority) for id in tasks]
    return ChangedTasks(changed, lab.notify_daemon("changed"))


def _change_task(store: QueueStore, id: str, held: bool | None, priority: int | None) -> TaskChange:
    task = store.task(id)
    is_so = held in (None, task.held) and priority in (None, task.priority)
    if is_so and task.state not in ENDED:
        return TaskChange(task, unchanged=True)
    return TaskChange(store.change(id, held=held, priority=priority), unchanged=False)


def _require_current_daemon() -> None:
    """Checks the version of the running daemon, as one of another version would not follow the request.
    Starts no daemon yet: it might start the very tasks that are about to be held or stopped."""
    if daemon_presence.find_daemon(state_folder.lab_folder()) is not None:
        lab.ensure_daemon()


def _find_targets(named: Sequence[str]) -> list[tuple[Path | None, list[Task]]]:
    try:
        return [_find_target(one) for one in named]
    except NotFound:
        if not any(glob.has_magic(one) or named_packages.is_query(one) for one in named):
            raise
    packages = named_packages.select_packages(named)
    found = [_find_target(str(path)) for path in packages]
    unended = [(path, tasks) for path, tasks in found if tasks or (path is not None and may_be_stopped(path))]
    if not unended:
        raise NotFound(
            "of the packages that are named none runs or waits",
            received=" ".join(named),
            fix="`roost ls status:running` lists those that run",
        )
    return unended


def _find_target(text: str) -> tuple[Path | None, list[Task]]:
    """Returns the package that runs without the lab, or else the tasks."""
    if resolve.is_package(text):
        task = resolve.unfinished_task(Path(text))
        return (Path(text), []) if task is None else (None, [task])
    try:
        found = resolve.find_tasks(text)
    except NotFound:
        if (path := resolve.find_in_runs(text)) is not None:
            return path, []
        raise
    return None, _unended(found, text)


def _unended(tasks: Sequence[Task], text: str) -> list[Task]:
    """Returns the tasks that can be stopped or changed: of a sweep, all that have not ended.

    Raises:
        Refused: All have ended.
    """
    if len(tasks) == 1:
        task_lookup.require_unended(tasks[0], text)
    unended = [task for task in tasks if task.state not in ENDED]
    if not unended:
        raise Refused(
            "all tasks of the sweep have ended", received=text, fix="`roost tasks --all --each` lists them"
        )
    return unended


def _stop_tasks(tasks: Sequence[Task], how: str) -> Generator[StopProgress, None, None]:
    _require_current_daemon()
    with lab.locked_queue() as store:
        requested_at: dict[str, float] = {}
        with store.transaction():  # or pending tasks would start on the cards of those that end
            states = store.states([task.id for task in tasks])
            for task in tasks:
                if states.get(task.id) not in ENDED:  # it may have ended meanwhile
                    store.request_stop(task.id, how)
                requested_at[task.id] = time.monotonic()
    with lab.open_queue() as store:
        with suppress(OSError):  # without it the daemon reads the queue a little later
            store.wake_daemon()
        yield from _wait_for_end(store, {task.id: task for task in tasks}, requested_at)


def _wait_for_end(
    store: QueueStore, tasks: dict[str, Task], requested_at: dict[str, float]
) -> Iterator[StopProgress]:
    while requested_at:
        states = store.states(list(requested_at))
        for id in list(requested_at):
            if states.get(id) in LIVE:
                continue
            del requested_at[id]
            task = store.task(id)
            ran = task.started is not None
            yield StopProgress(
                Path(task.package), task, StopResult(task.session, task.state, _step(task), ran)
            )
        if requested_at:
            _restart_daemon()
            for id, moment in requested_at.items():
                yield _progress_of(tasks[id], time.monotonic() - moment)
            time.sleep(_TICK_SECONDS)


def _restart_daemon() -> None:
    """Starts the daemon if it was killed: no other process passes a stored request on to a running task."""
    if daemon_presence.find_daemon(state_folder.lab_folder()) is not None:
        return
    try:
        lab.ensure_daemon()
    except (RoostError, OSError) as error:
        what = f"the request is stored, but no daemon carries it out yet: {error}"
        raise RoostError(what, fix="`roost lab start`; the tasks end then") from error


def _progress_of(task: Task, seconds: float) -> StopProgress:
    found = live_progress.read(task.folder / "progress")
    step, phase = (found.step, found.phase) if found else (0, "starting")
    return StopProgress(Path(task.package), task, StopPending(task.session or 0, step, phase, seconds))


def _step(task: Task) -> int | None:
    found = live_progress.read(task.folder / "progress")
    return found.step if found else None
