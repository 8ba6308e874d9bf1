"""``stop``, ``kill``, ``hold``, ``release``, ``priority``: orders to tasks, and to packages that run without
the lab."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from roost.base.errors import NotFound, Refused
from roost.base.system import state_folder
from roost.lab.background import daemon_presence
from roost.lab.queue import task_lookup
from roost.lab.queue.queue_store import Store
from roost.lab.queue.task import ENDED, KILL, LIVE, STOP, Task
from roost.operations import lab, resolve
from roost.operations.lifecycle.stop import StopPending, StopResult, stop
from roost.package import live_progress, sessions

_TICK_SECONDS = 0.05


@dataclass(frozen=True)
class StopProgress:
    """How it goes with one of those that were asked to end."""

    package: Path
    task: Task | None
    """As it was last seen; None: a package that runs without the lab."""
    event: StopPending | StopResult

    @property
    def can_continue(self) -> bool:
        """Whether `roost continue` knows what to do with it, as it does not with a command."""
        return (sessions.load_json(self.package / "request.json") or {}).get("kind") != "command"


def stop_all(named: Sequence[str | Path], *, now: bool = False) -> Iterator[StopProgress]:
    """Asks tasks and packages to save and end, then tells how that goes until all of them have.

    Args:
        named: Paths of packages, or tasks as `meant.tasks` finds them. All are looked up before the first is
            asked.
        now: End them at once.

    Yields:
        `StopPending` several times a second for each that has not ended, one `StopResult` for each.

    Raises:
        NotFound: One is not there.
        UsageError: One may mean several.
        Refused: A task that was named has ended, or the daemon is of another version.
        RoostError: As `stop`; or the daemon did not start.
    """
    tasks: dict[str, Task] = {}
    packages: list[Path] = []
    for one in dict.fromkeys(map(str, named)):
        path, found = _find_target(one)
        tasks |= {task.id: task for task in found}
        packages += [] if path is None else [path]
    runs = [(path, stop(path, now=now)) for path in packages]
    begun = [(path, run, next(run)) for path, run in runs]
    if tasks:
        yield from _stop_tasks(list(tasks.values()), KILL if now else STOP)
    for path, run, first in begun:
        yield StopProgress(path, None, first)
        yield from (StopProgress(path, None, event) for event in run)


def request_stop(named: str, *, now: bool = False) -> list[Task]:
    """Asks a task, or those of a sweep that have not ended, to save and end; waits for nobody. Gives whom.
    For the arguments and what it raises see `stop_all`; a package that is no task is not found.
    """
    found = _unended(resolve.tasks(named), named)
    with closing(_stop_tasks(found, KILL if now else STOP)) as told:
        next(told)
    return found


class TaskChange(NamedTuple):
    """What became of one task."""

    task: Task
    """As it is then."""
    unchanged: bool
    """There was nothing to change."""


def change(
    named: Sequence[str], *, held: bool | None = None, priority: int | None = None
) -> list[TaskChange]:
    """Holds tasks back, lets them go, or gives them another priority.

    Args:
        named: Tasks, as `meant.tasks` finds them. All are looked up before the first is changed.
        held: Whether they are held back; as before when None.
        priority: Higher comes first; as before when None.

    Raises:
        NotFound: One is not there.
        UsageError: One may mean several.
        Refused: One has ended, then none is changed; or the daemon is of another version.
        RoostError: The daemon did not start.
    """
    tasks = {task.id: task for one in dict.fromkeys(named) for task in _unended(resolve.tasks(one), one)}
    _require_current_daemon()
    with lab.changed() as store, store.together():
        changed = [_change_task(store, id, held, priority) for id in tasks]
    lab.ensure()
    return changed


def _change_task(store: Store, id: str, held: bool | None, priority: int | None) -> TaskChange:
    task = store.task(id)
    is_so = held in (None, task.held) and priority in (None, task.priority)
    if is_so and task.state not in ENDED:
        return TaskChange(task, unchanged=True)
    return TaskChange(store.change(id, held=held, priority=priority), unchanged=False)


def _require_current_daemon() -> None:
    """One of another version would not do as it is told. None is started yet: it might start what is about to
    be held back or stopped."""
    if daemon_presence.about(state_folder.lab_folder()) is not None:
        lab.ensure()


def _find_target(text: str) -> tuple[Path | None, list[Task]]:
    """The package that runs without the lab, or the tasks."""
    if resolve.is_package(text):
        task = resolve.unended(Path(text))
        return (Path(text), []) if task is None else (None, [task])
    try:
        found = resolve.tasks(text)
    except NotFound:
        if (path := resolve.in_runs(text)) is not None:
            return path, []
        raise
    return None, _unended(found, text)


def _unended(tasks: Sequence[Task], text: str) -> list[Task]:
    """Those that can be given an order: of a sweep, all that have not ended.

    Raises:
        Refused: There is none.
    """
    if len(tasks) == 1:
        task_lookup.require_unended(tasks[0], text)
    left = [task for task in tasks if task.state not in ENDED]
    if not left:
        raise Refused(
            "all tasks of the sweep have ended", received=text, fix="`roost tasks --all --each` lists them"
        )
    return left


def _stop_tasks(tasks: Sequence[Task], how: str) -> Generator[StopProgress, None, None]:
    _require_current_daemon()
    with lab.changed() as store:
        left: dict[str, float] = {}
        with store.together():  # or what waits would start in the place of what ends
            for task in tasks:
                with suppress(Refused):  # it has ended meanwhile
                    store.ask(task.id, how)
                left[task.id] = time.monotonic()
    with lab.opened() as store:
        if any(task.state in LIVE for task in tasks):
            lab.ensure()
        else:
            store.wake()
        yield from _wait_for_end(store, {task.id: task for task in tasks}, left)


def _wait_for_end(store: Store, seen: dict[str, Task], left: dict[str, float]) -> Iterator[StopProgress]:
    while left:
        states = store.states(list(left))
        for id, asked in list(left.items()):
            if states.get(id) in LIVE:
                yield _progress_of(seen[id], time.monotonic() - asked)
                continue
            del left[id]
            task = store.task(id)
            ran = task.started is not None
            yield StopProgress(
                Path(task.package), task, StopResult(task.session, task.state, _step(task), ran)
            )
        if left:
            if (
                daemon_presence.about(state_folder.lab_folder()) is None
            ):  # it was killed, and nobody else would go on
                lab.ensure()
            time.sleep(_TICK_SECONDS)


def _progress_of(task: Task, seconds: float) -> StopProgress:
    found = live_progress.read(Path(task.package) / "progress")
    step, phase = (found.step, found.phase) if found else (0, "starting")
    return StopProgress(Path(task.package), task, StopPending(task.session or 0, step, phase, seconds))


def _step(task: Task) -> int | None:
    found = live_progress.read(Path(task.package) / "progress")
    return found.step if found else None
