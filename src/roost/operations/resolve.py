"""What a person means who names a task or a package."""

from __future__ import annotations

import shlex
from pathlib import Path

from roost.base.errors import NotFound, UsageError
from roost.base.system import state_folder
from roost.base.text.word_list import join_names
from roost.lab.queue import database
from roost.lab.queue.queue_store import QueueStore
from roost.lab.queue.task import ENDED, Task

RUNS_FOLDER = "runs"
"""Where packages are made, below the current folder."""
_MAX_LISTED = 20
_EMPTY_QUEUE_FIX = "`roost submit` queues one, `roost ls` lists packages"


def has_queue() -> bool:
    """Whether this user has submitted anything yet; whoever only looks makes no queue."""
    return (state_folder.lab_folder() / database.FILE_NAME).exists()


def is_package(text: str | Path) -> bool:
    """Whether it is the path of a package, which goes before all that tasks are called by."""
    try:
        return (Path(text).expanduser() / "request.json").is_file()
    except (OSError, RuntimeError, ValueError):  # it is no path
        return False


def find_in_runs(text: str | Path) -> Path | None:
    """The package that `ls` shows by this name where it stands for ``./runs``."""
    name = str(text)
    found = Path(RUNS_FOLDER) / name
    return found if name and "/" not in name and is_package(found) else None


def find_tasks(text: str) -> list[Task]:
    """The tasks that are meant by an id, the beginning of one, a name, or the path of a package: one, or all
    of a sweep.

    Raises:
        NotFound: There is none.
        UsageError: It may mean several.
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


def unfinished_task(package: Path) -> Task | None:
    """The task of a package that waits or runs.

    Raises:
        UsageError: There are several.
        Refused: The queue cannot be opened.
    """
    found = unfinished_tasks(package)
    if len(found) > 1:
        what = f"{len(found)} tasks are meant by it: {join_names([one.id for one in found], _MAX_LISTED)}"
        raise UsageError(what, received=str(package), fix="give the id of one")
    return found[0] if found else None


def unfinished_tasks(package: Path) -> list[Task]:
    """The tasks of a package that wait or run, by whatever path the package is named.

    Raises:
        Refused: The queue cannot be opened.
    """
    # Most packages have never been a task: whatever is the matter with the queue is nothing to them.
    ids = [path.stem.removeprefix("task-") for path in (package / "sessions").glob("task-*.json")]
    if not ids or not has_queue():
        return []
    with QueueStore.open() as store:
        left = [store.task(id) for id, state in store.states(ids).items() if state not in ENDED]
    return [task for task in left if _is_same_folder(Path(task.package), package)]


def find_package(text: str | Path) -> Path:
    """The package that is meant by its path, by its task, or by its name in ``./runs``, in this order.

    Raises:
        NotFound: There is none.
        UsageError: It may mean several.
        Refused: The queue cannot be opened.
    """
    if is_package(text):
        return Path(text)
    try:
        task, *others = find_tasks(str(text))
    except NotFound:
        if (found := find_in_runs(text)) is not None:
            return found
        raise
    if others:
        each = [f"{one.name} ({one.state})" for one in (task, *others)]
        what = f"it is a sweep of {len(each)} tasks: {join_names(each, _MAX_LISTED)}"
        raise UsageError(what, received=str(text), fix="name one of them")
    return Path(task.package)


def _require_no_package(text: str) -> None:
    """Whoever names a package hears that it is no task, and whoever types another path what is wrong with
    that.

    Raises:
        NotFound: It is one of these.
    """
    package = text if is_package(text) else find_in_runs(text)
    if package is not None:
        path = shlex.quote(str(package))
        fix = f"`roost show {path}` shows it, `roost submit continue {path}` queues it"
        raise NotFound("it is a package, and was never a task here", received=text, fix=fix)
    try:
        is_path = "/" in text or Path(text).is_dir()
    except (OSError, ValueError):
        return
    if is_path:
        from roost.package.package import PackageFolder  # whoever lists tasks does not wait for it

        PackageFolder.open(text)


def _is_same_folder(one: Path, other: Path) -> bool:
    """Whether both are one folder; a copy has the tickets of what it was copied from."""
    try:
        return one.samefile(other)
    except OSError:  # one was removed
        return False
