"""Finds the tasks and packages that a user names by id, name or path."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from roost.base.errors import NotFound, UsageError
from roost.base.system import state_folder
from roost.base.text.typed_path import typed_path
from roost.base.text.word_list import join_names
from roost.lab.queue import database
from roost.lab.queue.queue_store import QueueStore
from roost.lab.queue.task import ENDED, Task
from roost.package import session_folder
from roost.package.dlnest import original_folder
from roost.package.session_folder import SessionFolder

RUNS_FOLDER = "runs"
"""The folder of packages, below the current folder, in which commands look for a name."""
_MAX_LISTED = 4
_EMPTY_QUEUE_FIX = "`roost submit` queues one, `roost ls` lists packages"


def has_queue() -> bool:
    """Whether this user has a queue. Commands that only read do not create one."""
    return (state_folder.lab_folder() / database.FILE_NAME).exists()


def is_package(text: str | Path) -> bool:
    """Whether the text is the path of a package. A path has priority over the names and ids of tasks."""
    try:
        is_begun = (typed_path(text) / "request.json").is_file()
    except (OSError, NotFound, ValueError):  # not a path
        return False
    return is_begun and _session_folder_at(text) is None


def _session_folder_at(text: str | Path) -> SessionFolder | None:
    try:
        return session_folder.find_at(typed_path(text))
    except NotFound:  # an unknown user after ~
        return None


def find_in_runs(text: str | Path) -> Path | None:
    """Returns the package of this name in ``./runs``, as `roost ls` shows it; None if there is none."""
    name = str(text)
    found = Path(RUNS_FOLDER) / name
    return found if name and "/" not in name and is_package(found) else None


def find_tasks(text: str) -> list[Task]:
    """Returns the tasks named by an id, a label, the beginning of an id, a name, or the path of a package or
    session folder: one task, or all of a sweep.

    Raises:
        NotFound: There is none.
        UsageError: The text is ambiguous.
        Refused: The queue cannot be opened.
    """
    if not database.has_existed(state_folder.lab_folder()):
        _require_no_package(text)
        raise NotFound("there is no such task or package", received=text, fix=_EMPTY_QUEUE_FIX)
    with QueueStore.open() as store:
        try:
            return store.find_all(text)
        except NotFound:
            _require_no_package(text)
            raise


def unfinished_task(folder: Path) -> Task | None:
    """Returns the task of a package or session folder that has not ended; None if there is none.

    Raises:
        UsageError: There are several.
        Refused: The queue cannot be opened.
    """
    found = unfinished_tasks(folder)
    if len(found) > 1:
        what = (
            f"{len(found)} of its tasks have not ended: {join_names([one.id for one in found], _MAX_LISTED)}"
        )
        raise UsageError(what, received=str(folder), fix="give the id of one of them")
    return found[0] if found else None


def unfinished_tasks(folder: Path) -> list[Task]:
    """Returns the tasks of a package or session folder that have not ended, but for tasks that only read the
    package: these have session folders of their own. The path may be any path of the folder.

    Raises:
        Refused: The queue cannot be opened.
    """
    # Most packages never had a task: for these the queue is not opened, so a damaged queue does no harm.
    ids = [path.stem.removeprefix("task-") for path in (folder / "sessions").glob("task-*.json")]
    if not ids or not has_queue():
        return []
    with QueueStore.open() as store:
        unfinished = [store.task(id) for id, state in store.states(ids).items() if state not in ENDED]
    return [task for task in unfinished if _is_same_folder(task.folder, folder)]


def find_package(text: str | Path) -> Path:
    """Returns the package named by its path, by its task, or by its name in ``./runs``, in this order.

    Raises:
        NotFound: There is none.
        UsageError: The text is ambiguous, or names a sweep.
        Refused: The queue cannot be opened.
    """
    if is_package(text) or original_folder.is_original(Path(text)):
        return Path(text)
    try:
        task, *others = find_tasks(str(text))
    except NotFound:
        if (found := find_in_runs(text)) is not None:
            return found
        raise
    if others:
        each = [f"{one.name} ({one.state})" for one in (task, *others)]
        what = f"this is a sweep of {len(each)} tasks, and one package is needed: "
        fix = f"name one of them, such as {shlex.quote(task.package)}"
        raise UsageError(f"{what}{join_names(each, _MAX_LISTED)}", received=str(text), fix=fix)
    if is_removed(task):
        fix = f"if it is in the trash: roost restore {shlex.quote(task.package)}"
        raise NotFound("the package of this task was removed", received=str(text), fix=fix)
    return Path(task.package)


def find_session_folder(text: str | Path) -> SessionFolder:
    """Returns the session folder that a text names: of a task that only reads a package its own; else the
    package, as `find_package` finds it.

    Raises:
        NotFound, UsageError, Refused: As `find_package`.
    """
    if (folder := _session_folder_at(text)) is not None:
        return folder
    if not is_package(text) and find_in_runs(text) is None and (task := find_reading_task(text)) is not None:
        return session_folder.open_folder(task.folder, Path(task.package))
    package = find_package(text)
    return SessionFolder(package, package)


def find_reading_task(text: str | Path) -> Task | None:
    """Returns the task that a text names if it only reads its package, as an analyzer does; else None.

    Raises:
        UsageError: The text is ambiguous.
        Refused: The queue cannot be opened.
    """
    try:
        task, *_ = find_tasks(str(text))
    except NotFound:
        return None
    return None if task.traits.locks_package else task


def is_removed(task: Task) -> bool:
    """Whether the package of a task, or its session folder, does not exist any more."""
    return task.state in ENDED and not os.path.lexists(task.folder)


def _require_no_package(text: str) -> None:
    """Raises a specific error if the text, which names no task, is a package or another path.

    Raises:
        NotFound: It is a package that never was a task, or a folder that is not a package.
    """
    package = text if is_package(text) else find_in_runs(text)
    if package is not None:
        path = shlex.quote(str(package))
        fix = f"`roost show {path}` shows it, `roost submit continue {path}` queues it"
        raise NotFound("this is a package that was never a task of this lab", received=text, fix=fix)
    try:
        is_path = "/" in text or Path(text).is_dir()
    except (OSError, ValueError):
        return
    if is_path:
        from roost.package.package import PackageFolder  # slow; lists of tasks do not need it

        PackageFolder.open(text)


def _is_same_folder(one: Path, other: Path) -> bool:
    """Whether both paths are one folder. A copy of a package has the task files of the original."""
    try:
        return one.samefile(other)
    except OSError:  # one of them was removed
        return False
