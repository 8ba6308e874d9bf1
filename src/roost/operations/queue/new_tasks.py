"""New rows of the queue: made from packages, and queued all or none."""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from roost.base import durable
from roost.base.errors import Refused, RoostError
from roost.devices.lease_files import user_name
from roost.devices.resource_request import TaskOptions
from roost.lab.queue import package_roots, task_file
from roost.lab.queue.task import LIVE, PENDING, Task, new_id
from roost.lab.sessions.session_plan import SessionPlan
from roost.operations import lab
from roost.operations.queue.resources import TaskConditions
from roost.package import package_name
from roost.package.kinds import TaskKind
from roost.package.package import PackageFolder
from roost.package.session_folder import SessionFolder

_MAX_PARALLEL = 8
_THREADS_VARIABLE = "OMP_NUM_THREADS"
"""Set for a task with a number of CPU cores: by default most libraries use all cores of the machine."""


@dataclass(frozen=True)
class NewTasks:
    """The tasks that a submission has queued."""

    tasks: Sequence[Task]
    notes: Sequence[str] = ()
    """Notes for the user, one line each."""

    def with_notes(self, notes: Sequence[str]) -> NewTasks:
        """Returns the same tasks with these notes before their own."""
        return NewTasks(self.tasks, [*notes, *self.notes])


def new_task(
    folder: SessionFolder,
    plan: SessionPlan,
    options: TaskOptions,
    conditions: TaskConditions,
    *,
    kind: TaskKind = TaskKind.TRAIN,
    sweep: str | None = None,
    sweep_name: str | None = None,
) -> Task:
    """Returns the pending row of a package, or of the session folder of a task that reads one. Nothing is
    queued yet."""
    now = time.time()
    if options.cpus is not None and _THREADS_VARIABLE not in plan.env:
        plan = msgspec.structs.replace(plan, own_env={_THREADS_VARIABLE: str(options.cpus), **plan.own_env})
    profile, scale = "", None
    if options.gpus and folder.is_package:
        from roost.operations.queue import memory_profile  # takes 20 ms, which a CPU task need not spend

        profile, scale = memory_profile.profile_of(PackageFolder(folder.path), plan, sweep=sweep)
    return Task(
        id=new_id(now),
        name=str(folder.path.relative_to(folder.package_path.parent)),
        kind=kind,
        package=str(folder.package_path),
        session_folder="" if folder.is_package else str(folder.path),
        user=user_name(os.geteuid()),
        state=PENDING,
        need=options.need,
        priority=options.priority,
        submitted=now,
        begin=conditions.begin,
        after=conditions.after,
        after_any=conditions.after_any,
        sweep=sweep,
        sweep_name=sweep_name,
        most_parallel=options.max_parallel,
        retries=options.retries,
        profile=profile,
        scale=scale,
        plan=msgspec.to_builtins(plan),
    )


def require_unused_name(root: Path, name: str | None) -> None:
    """Checks that a new package may have this name: the same command typed twice is not a second run of the
    package. Of two calls at the same time, one is refused when its package is made.

    Args:
        root: The folder of the new package.
        name: None: no name was requested.

    Raises:
        Refused: The folder exists, or an unended task has that package.
        UsageError: The text is not a valid name.
    """
    if name is None:
        return
    if os.path.lexists(path := root / package_name.checked_name(name)):
        raise package_name.name_taken_error(root, name)
    require_unqueued(path)  # the package of a pending task may have been removed


def enqueue(tasks: Iterable[Task], *, is_new: bool = True) -> NewTasks:
    """Queues tasks, all or none; on failure removes what was made for tasks that are not in the queue. An
    error after the tasks were committed is a note, as they will run.

    Args:
        tasks: An iterator makes each task (and its package) when it is consumed.
        is_new: Whether the session folders (packages, for trainings) were made for these tasks.

    Raises:
        Refused: A dependency can never be fulfilled.
        OSError: A package cannot be written.
        RoostError: The queue cannot be written. These, and what the iterator raises: no task is queued.
    """
    made: list[Task] = []
    try:
        for task in tasks:
            made.append(task)
        return _commit(made)
    except (RoostError, OSError, KeyboardInterrupt) as error:
        if not _undo(made, is_new=is_new):
            raise
        return NewTasks(_read_again(made), [f"queued; afterwards: {error or 'interrupted'}"])
    except BaseException:
        _undo(made, is_new=is_new)
        raise


def _commit(tasks: Sequence[Task]) -> NewTasks:
    """Adds tasks whose packages exist to the queue in one transaction, and wakes the daemon. Returns them
    with their numbers, and the notes of `lab.notify_daemon`."""
    with lab.locked_queue() as store:
        package_roots.add(store.folder, [Path(task.package) for task in tasks])
        _announce(tasks, store.folder)
        queued = store.submit(tasks)
        for task in tasks:
            with contextlib.suppress(OSError):  # it is queued, and the announced file suffices to start it
                task_file.confirm(task)
    return NewTasks(queued, lab.notify_daemon("queued"))


def _read_again(tasks: Sequence[Task]) -> Sequence[Task]:
    """Returns queued tasks with their numbers, if the queue can be read."""
    with contextlib.suppress(RoostError, OSError), lab.open_queue() as store:
        return [store.task(task.id) for task in tasks]
    return tasks


def _announce(tasks: Sequence[Task], folder: Path) -> None:
    if len(tasks) == 1:
        task_file.announce(tasks[0], folder)
        return
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(_MAX_PARALLEL) as pool:  # each write waits for the disk
        list(pool.map(lambda task: task_file.announce(task, folder), tasks))


def _undo(tasks: Sequence[Task], *, is_new: bool) -> bool:
    """Removes what was made for tasks, unless they are queued. Returns whether they are.

    If the queue cannot be read, nothing is removed: a task without its package is worse.
    """
    with contextlib.suppress(RoostError, OSError), lab.open_queue() as store:
        if store.states([task.id for task in tasks]):  # all of them: they are queued in one transaction
            return True
        for task in tasks:
            with contextlib.suppress(OSError):  # the folder remains; no task runs it
                if is_new:
                    durable.remove_folder(task.folder)
                else:
                    task_file.remove(task)
    return False


def require_unqueued(package: Path) -> None:
    """Checks that no task of a package is pending or live, but for those that only read it.

    Raises:
        Refused: There is such a task.
    """
    with lab.open_queue() as store:
        unended = store.task_packages([PENDING, *LIVE])
    this, links_in = package.resolve(), functools.cache(_symlinks_in)  # many packages are in one folder
    for id, state, path in unended:
        folder, _, name = path.rpartition("/")
        if (name == this.name or name in links_in(folder)) and Path(path).resolve() == this:
            what = f"a task of this package is {state}: {id}"
            raise Refused(what, where=package, fix=f"wait for it, or `roost stop {id}`")


def _symlinks_in(folder: str) -> frozenset[str]:
    try:
        with os.scandir(folder) as found:
            return frozenset(one.name for one in found if one.is_symlink())
    except OSError:  # the folder was removed
        return frozenset()
