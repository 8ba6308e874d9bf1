"""What waits: the rows of new tasks, queued, all or none."""

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
from roost.lab.queue import task_file
from roost.lab.queue.task import LIVE, PENDING, Task, new_id
from roost.lab.sessions.session_plan import Plan
from roost.operations import lab
from roost.operations.queue.resources import TaskOptions
from roost.package import package_name
from roost.package.package import PackageFolder

_THREADS_VARIABLE = "OMP_NUM_THREADS"
"""Of a task that says how many cores it takes: most libraries take all of the machine unless told."""


@dataclass(frozen=True)
class NewTasks:
    """Tasks that wait now, by what was asked."""

    tasks: Sequence[Task]
    notes: Sequence[str] = ()
    """What a person should hear about it, one line each."""


def new_task(
    package: PackageFolder,
    plan: Plan,
    options: TaskOptions,
    *,
    sweep: str | None = None,
    sweep_name: str | None = None,
) -> Task:
    """The row of a package that waits."""
    now = time.time()
    if options.need.cores is not None and _THREADS_VARIABLE not in plan.env:
        plan = msgspec.structs.replace(
            plan, own_env={_THREADS_VARIABLE: str(options.need.cores), **plan.own_env}
        )
    profile, scale = "", None
    if options.need.cards:
        from roost.operations.queue import memory_profile  # 20 ms, which a task of the CPU need not wait for

        profile, scale = memory_profile.profile_of(package, plan)
    return Task(
        id=new_id(now),
        name=package.path.name,
        package=str(package.path),
        user=user_name(os.geteuid()),
        state=PENDING,
        need=options.need,
        priority=options.priority,
        submitted=now,
        begin=options.begin,
        after=tuple(options.after),
        after_any=tuple(options.after_any),
        sweep=sweep,
        sweep_name=sweep_name,
        most_parallel=options.most_parallel,
        retries=options.retries,
        profile=profile,
        scale=scale,
        plan=msgspec.to_builtins(plan),
    )


def require_unused_name(root: Path, name: str | None) -> None:
    """Makes sure that a new package may have this name: the same command typed twice is no second run of it.
    Of two who ask at the same time, one is refused when the package is made.

    Args:
        root: Where it is to lie.
        name: None: no name was asked for.

    Raises:
        Refused: There is one, or a task waits with it.
        UsageError: It is no name.
    """
    if name is None:
        return
    if os.path.lexists(path := root / package_name.checked_name(name)):
        raise package_name.name_taken_error(root, name)
    require_unqueued(path)  # somebody has removed what a task waits with


def enqueue(tasks: Iterable[Task], *, is_new: bool = True) -> list[Task]:
    """Queues tasks, all or none; what was made for those that are not is removed.

    Args:
        tasks: Each is made when it is asked for.
        is_new: Whether their packages were made for them.

    Raises:
        Refused, RoostError, OSError: As `lab.enqueue`, or what making them raises.
    """
    made: list[Task] = []
    try:
        for task in tasks:
            made.append(task)
        lab.enqueue(made)
    except BaseException:
        _undo(made, is_new=is_new)
        raise
    return made


def _undo(tasks: Sequence[Task], *, is_new: bool) -> None:
    # Where nobody can report what is queued, nothing is removed: a task without its package is worse.
    with contextlib.suppress(RoostError), lab.opened() as store:
        states = store.states([task.id for task in tasks])
        for task in tasks:
            if task.id not in states and is_new:
                with contextlib.suppress(OSError):  # it stays: nobody runs it
                    durable.remove_folder(Path(task.package))
            elif task.id not in states:
                task_file.remove(task)


def require_unqueued(package: Path) -> None:
    """Makes sure that no task waits or runs with a package.

    Raises:
        Refused: One does.
    """
    with lab.opened() as store:
        unended = store.packages([PENDING, *LIVE])
    this, links_in = package.resolve(), functools.cache(_symlinks_in)  # many lie in one folder
    for id, state, path in unended:
        folder, _, name = path.rpartition("/")
        if (name == this.name or name in links_in(folder)) and Path(path).resolve() == this:
            what = f"a task of this package is {state}: {id}"
            raise Refused(what, where=package, fix=f"wait for it, or `roost stop {id}`")


def _symlinks_in(folder: str) -> frozenset[str]:
    try:
        with os.scandir(folder) as found:
            return frozenset(one.name for one in found if one.is_symlink())
    except OSError:  # it is gone, with all that was in it
        return frozenset()
