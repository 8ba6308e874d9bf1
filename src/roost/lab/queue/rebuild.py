"""``lab rebuild``: replaces a damaged or missing queue with a new one, built from the packages."""

# Not durable: gives the old queue a second name

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

import msgspec

from roost.base import durable
from roost.base.errors import RoostError, with_fix
from roost.base.system import state_folder
from roost.lab.queue import admission, database, package_roots, task_file
from roost.lab.queue.history import MemoryPeak, QueueHistory
from roost.lab.queue.queue_store import QueueStore
from roost.lab.queue.task import LIVE, PENDING, RUNNING, STARTING, SUCCEEDED, Task
from roost.package import package_name, session_folder, sessions

_WAL_SUFFIXES = ("-wal", "-shm")
_LOCK = "rebuild.lock"


class RebuiltQueue(NamedTuple):
    """The result of a rebuild."""

    tasks: int
    """The number of tasks in the new queue."""
    old_queue: Path | None
    """The new path of the old queue; None if there was none."""
    notes: tuple[str, ...] = ()
    """A line for each task file that was skipped, and for each task that will never start."""


@contextlib.contextmanager
def rebuild_lock(folder: Path, *, is_exclusive: bool = False) -> Iterator[None]:
    """A block during which no queue is rebuilt in a folder: changes made during a rebuild would be lost with
    the old queue.

    Args:
        folder: The lab's folder.
        is_exclusive: For the rebuild itself, which waits for all other blocks.

    Raises:
        Refused: The folder is not suitable, or it cannot be written, in the block as well.
        OSError: The lock cannot be created.
    """
    import fcntl

    state_folder.prepare(folder)
    with state_folder.report_write_errors(folder):
        fd = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX if is_exclusive else fcntl.LOCK_SH)
            yield
        finally:
            os.close(fd)


def rebuild(folder: Path, more: Iterable[Path] = (), *, lost_lab: Path | None = None) -> RebuiltQueue:
    """Builds a new queue from the packages, and renames the old one.

    Pending tasks stay pending, running tasks keep their cards, and ended tasks stay ended. Settings and
    memory profiles come from the old queue, as far as it can be read. Packages hold no environments: pending
    tasks will be started with that of the caller.

    The caller makes sure that no daemon uses the folder, and holds `rebuild_lock` exclusively.

    Args:
        folder: The lab's folder.
        more: Packages, or folders of packages, in addition to those that the queue has ever recorded.
        lost_lab: The folder of a lab, of any machine, that no longer exists: its tasks are taken over too.
            Tasks of all other labs are skipped: each may have its own daemon, and they would run twice.

    Raises:
        Refused: The folder is not suitable.
        RoostError: The new queue cannot be written; the old one is unchanged.
        OSError: As `RoostError`.
    """
    state_folder.prepare(folder)
    notes = list[str]()
    found = _read_tasks(_packages([*package_roots.read(folder), *more]), notes.append)
    others = Counter(one.lab for one in found if not _belongs_to(one, folder, lost_lab))
    notes += [_other_lab_note(*one) for one in sorted(others.items())]
    found = [one for one in found if one.lab not in others]
    tasks = _current_tasks(found, notes.append)
    notes += admission.never_starting(tasks)
    path = folder / database.FILE_NAME
    with state_folder.exclusive_lock(folder):
        # While there is no queue, the roots keep other processes from creating an empty one.
        package_roots.add(folder, [Path(task.package) for task in tasks])
        settings, peaks = _read_old_queue(_newest_old_queue(path))
        staging = durable.staging_name(path)
        durable.make_folder(staging, mode=0o700)
        try:
            with QueueStore.open(staging) as new:
                new.restore(tasks)
                for key, value in settings.items():
                    new.set_setting(key, value)
                for peak in peaks:
                    new.add_peak(peak)
            old_queue = _rename_old_queue(path)
            durable.rename(staging / database.FILE_NAME, path)
        finally:
            durable.discard(staging)
    for one in found:
        if one.lab and one.lab != task_file.lab_name(folder):
            try:
                task_file.write(one.task, folder)
            except OSError as error:  # the new queue has the task already
                notes.append(f"{one.task.package} still names the other lab: {error}")
    return RebuiltQueue(len(tasks), old_queue, tuple(notes))


def _packages(given: Iterable[Path]) -> Iterator[Path]:
    """Yields each package among paths and in their folders, once."""
    seen = set()
    for root in given:
        for folder in (
            root.absolute(),
            *_entries(root.absolute()),
            *_entries(root.absolute() / "runs"),
        ):
            if folder not in seen and (folder / "request.json").is_file():
                seen.add(folder)
                yield folder


def _entries(root: Path) -> list[Path]:
    try:
        return sorted(one for one in root.iterdir() if not durable.is_staging(one.name))
    except OSError:  # not a folder, or one that the user may not read
        return []


def _belongs_to(one: task_file.StoredTask, folder: Path, lost_lab: Path | None) -> bool:
    if one.lab in ("", task_file.lab_name(folder)):
        return True
    host = one.lab.partition(":")[0]
    return lost_lab is not None and one.lab == task_file.lab_name(lost_lab, host)


def _other_lab_note(lab: str, count: int) -> str:
    host, _, folder = lab.partition(":")
    tasks = "a task" if count == 1 else f"{count} tasks"
    fix = f"if that lab is lost, run `roost lab rebuild --take-over {quote(folder)}`"
    return with_fix(f"skipped {tasks} of the lab in {folder} of {host}", fix)


def _read_tasks(packages: Iterable[Path], report: Callable[[str], None]) -> list[task_file.StoredTask]:
    """Returns the file of each task of this user. Of a package and its copies, that of the original
    counts."""
    found: dict[str, task_file.StoredTask] = {}
    for package in packages:
        for path in task_file.unconfirmed_files(package):
            report(f"skipped {path}: its submit was interrupted before the task was queued")
        for one in task_file.read_all(package, lambda why: report(f"skipped {why}")):
            if one.uid != os.geteuid():
                report(f"skipped the task {one.task.id} in {package}: its file belongs to another user")
            elif one.task.id not in found or one.is_original:
                found[one.task.id] = one
    return list(found.values())


def _current_tasks(found: Iterable[task_file.StoredTask], report: Callable[[str], None]) -> list[Task]:
    """Returns the tasks with the states of their newest sessions, in the order of submission."""
    tasks = []
    for one in found:
        try:
            task_file.require_valid(task := _with_newest_session(_with_environment(one.task)))
            tasks.append(task)
        except (OSError, ValueError, TypeError, OverflowError) as error:
            report(f"skipped the task {one.task.id} in {one.task.package}: {error}")
    return sorted(tasks, key=lambda task: (task.submitted, task.id))


def _with_environment(task: Task) -> Task:
    if not task.plan:
        return task
    return msgspec.structs.replace(task, plan={**task.plan, task_file.ENVIRONMENT: dict(os.environ)})


def _with_newest_session(task: Task) -> Task:
    """Updates a task from its newest session, if that is an attempt later than the task file: the daemon then
    finds whether it runs or how it ended."""
    found = sessions.read_all(task.folder / session_folder.FOLDER)
    newest = next((one for one in reversed(found) if one.request.task == task.id), None)
    attempt = int(newest.request.attempt) if newest is not None else 0
    is_idle = task.state not in LIVE
    if newest is None or attempt < task.attempt or (is_idle and attempt == task.attempt):
        return task if is_idle else msgspec.structs.replace(task, state=PENDING, stop_asked="")
    record = newest.record
    if record is not None and record.state == SUCCEEDED:
        recorded = {name: record.get(name) for name in ("started", "ended", "exit_code")}
        return msgspec.structs.replace(
            task, state=SUCCEEDED, reason="", attempt=attempt, session=newest.number, plan={}, **recorded
        )
    return msgspec.structs.replace(
        task,
        state=STARTING if record is None else RUNNING,
        reason="",
        attempt=attempt,
        session=newest.number if record is not None else None,
        started=record.started if record is not None else None,
        ended=None,
        exit_code=None,
        cards=tuple(map(str, newest.request.cards or ())),
        reserved_mb=newest.request.reserved_mb,
    )


def _read_old_queue(path: Path) -> tuple[dict[str, Any], list[MemoryPeak]]:
    """Returns the settings and memory profiles of the old queue, which no package holds."""
    settings: dict[str, Any] = {}
    peaks: list[MemoryPeak] = []
    with contextlib.suppress(sqlite3.Error):  # there is none
        old = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, isolation_level=None)
        with contextlib.closing(old):
            history = QueueHistory(path, old)
            with contextlib.suppress(RoostError):  # damaged: the settings are the defaults again
                settings = history.settings()
            with contextlib.suppress(RoostError):  # damaged: later runs measure the memory again
                peaks = history.peaks()
    return settings, peaks


def _rename_old_queue(path: Path) -> Path | None:
    """Renames the old queue; returns its new path, or None if there is none.

    At every moment it is complete under one of its names, or missing as before: its last changes are in the
    write-ahead log, which has both names meanwhile.
    """
    new_path = path.with_name(f"{_old_queue_prefix(path)}{package_name.time_name(time.time())}")
    besides = [suffix for suffix in _WAL_SUFFIXES if path.with_name(path.name + suffix).exists()]
    for suffix in besides:
        os.link(path.with_name(path.name + suffix), new_path.with_name(new_path.name + suffix))
    if was_there := path.exists():
        durable.rename(path, new_path)
    for suffix in besides:  # SQLite would take these for files of the new queue
        path.with_name(path.name + suffix).unlink()
    durable.fsync_folder(path.parent)
    return new_path if was_there else None


def _newest_old_queue(path: Path) -> Path:
    """Returns the old queue; if it is missing, the newest renamed one, perhaps of a rebuild that was
    killed."""
    if path.exists():
        return path
    renamed = [
        one for one in path.parent.glob(f"{_old_queue_prefix(path)}*") if not one.name.endswith(_WAL_SUFFIXES)
    ]
    return max(renamed, default=path)


def _old_queue_prefix(path: Path) -> str:
    return f"{path.name}.before-"
