"""``lab rebuild``: a new queue from what the packages tell, in the place of one that is damaged or gone."""

# Not durable: gives the queue that is put aside a second name

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
from roost.base.errors import RoostError
from roost.base.system import state_folder
from roost.lab.queue import admission, database, package_roots, task_file
from roost.lab.queue.history import Peak, Remembered
from roost.lab.queue.queue_store import Store
from roost.lab.queue.task import LIVE, PENDING, RUNNING, STARTING, SUCCEEDED, Task
from roost.package import package_name, sessions

_BESIDE = ("-wal", "-shm")
_LOCK = "rebuild.lock"


class Made(NamedTuple):
    """A queue that was made anew."""

    tasks: int
    """That it has now."""
    aside: Path | None
    """Where the old one is; None if there was none."""
    notes: tuple[str, ...] = ()
    """What a person should hear: which tickets were passed over, and what will never start; a line each."""


@contextlib.contextmanager
def undisturbed(folder: Path, *, alone: bool = False) -> Iterator[None]:
    """Waits until no queue is made anew here, and keeps it from being; what is written meanwhile would be
    lost with the old one.

    Args:
        folder: The lab's.
        alone: For whoever makes it anew: waits also for all others who are inside.

    Raises:
        Refused: The folder will not do, or what lies in it cannot be written; also what was to be inside.
        OSError: The lock cannot be made.
    """
    import fcntl

    state_folder.prepare(folder)
    with state_folder.report_write_errors(folder):
        fd = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
            yield
        finally:
            os.close(fd)


def rebuild(folder: Path, more: Iterable[Path] = (), *, lost: Path | None = None) -> Made:
    """Makes the queue anew. What waited waits, what runs is taken over with its cards, what has ended stays
    so. Settings and measured memory come from the old queue, as far as it can be read. No package holds an
    environment: what waits is started with that of the caller.

    The caller makes sure that no daemon uses the folder, and is `undisturbed` alone.

    Args:
        folder: The lab's.
        more: Packages, or folders that hold some, beside those that the queue has ever heard of.
        lost: The folder of a lab, of whatever machine, that is no more: its tasks are taken over, too. Those
            of all others are passed over: each may have its own daemon, and would run twice.

    Raises:
        Refused: The folder will not do.
        RoostError: The new queue cannot be written; the old one still stands.
        OSError: Likewise.
    """
    state_folder.prepare(folder)
    notes = list[str]()
    found = _found(_packages([*package_roots.read(folder), *more]), notes.append)
    others = Counter(one.lab for one in found if not _is_of(one, folder, lost))
    notes += [_of_another(*one) for one in sorted(others.items())]
    found = [one for one in found if one.lab not in others]
    tasks = _tasks(found, notes.append)
    notes += admission.hopeless(tasks)
    path = folder / database.NAME
    with state_folder.exclusive_lock(folder):
        package_roots.note(
            folder, [Path(task.package) for task in tasks]
        )  # while none stands nobody begins another
        settings, peaks = _remembered(_newest(path))
        staging = durable.staging_name(path)
        durable.make_folder(staging, mode=0o700)
        try:
            with Store.open(staging) as new:
                new.restore(tasks)
                for key, value in settings.items():
                    new.set(key, value)
                for peak in peaks:
                    new.learn(peak)
            aside = _put_aside(path)
            durable.rename(staging / database.NAME, path)
        finally:
            durable.discard(staging)
    for one in found:
        if one.lab and one.lab != task_file.name_of_lab(folder):
            try:
                task_file.write(one.task, folder)
            except OSError as error:  # it is ours already
                notes.append(f"{one.task.package} still names the other lab: {error}")
    return Made(len(tasks), aside, tuple(notes))


def _packages(given: Iterable[Path]) -> Iterator[Path]:
    """Each package there, once."""
    seen = set()
    for root in given:
        for folder in (
            root.absolute(),
            *_folders_in(root.absolute()),
            *_folders_in(root.absolute() / "runs"),
        ):
            if folder not in seen and (folder / "request.json").is_file():
                seen.add(folder)
                yield folder


def _folders_in(root: Path) -> list[Path]:
    try:
        return sorted(root.iterdir())
    except OSError:  # no folder, or not ours to look into
        return []


def _is_of(one: task_file.Ticket, folder: Path, lost: Path | None) -> bool:
    if one.lab in ("", task_file.name_of_lab(folder)):
        return True
    host = one.lab.partition(":")[0]
    return lost is not None and one.lab == task_file.name_of_lab(lost, host)


def _of_another(lab: str, count: int) -> str:
    host, _, folder = lab.partition(":")
    tasks = "a task" if count == 1 else f"{count} tasks"
    fix = f"if that is lost: roost lab rebuild --take-over {quote(folder)}"
    return f"passed over {tasks} of the lab in {folder} of {host}; {fix}"


def _found(packages: Iterable[Path], tell: Callable[[str], None]) -> list[task_file.Ticket]:
    """The ticket of each task of this user. Of a package and its copies the one tells that was first."""
    found: dict[str, task_file.Ticket] = {}
    for package in packages:
        for path in task_file.unconfirmed(package):
            tell(f"passed over {path}: its submit was cut off before it was queued")
        for one in task_file.read_all(package, lambda why: tell(f"passed over {why}")):
            if one.uid != os.geteuid():
                tell(f"passed over the task {one.task.id} in {package}: its ticket is of another user")
            elif one.task.id not in found or one.at_home:
                found[one.task.id] = one
    return list(found.values())


def _tasks(found: Iterable[task_file.Ticket], tell: Callable[[str], None]) -> list[Task]:
    """In the order in which they were submitted."""
    tasks = []
    for one in found:
        try:
            task_file.require_sense(task := _as_it_is(_with_environment(one.task)))
            tasks.append(task)
        except (OSError, ValueError, TypeError, OverflowError) as error:
            tell(f"passed over the task {one.task.id} in {one.task.package}: {error}")
    return sorted(tasks, key=lambda task: (task.submitted, task.id))


def _with_environment(task: Task) -> Task:
    if not task.plan:
        return task
    return msgspec.structs.replace(task, plan={**task.plan, task_file.ENVIRONMENT: dict(os.environ)})


def _as_it_is(task: Task) -> Task:
    """A session that the ticket has not heard of is the attempt that began since: the daemon will see how it
    stands, or how it has ended."""
    found = sessions.read_all(Path(task.package) / "sessions")
    newest = next((one for one in reversed(found) if one.request.get("task") == task.id), None)
    attempt = int(newest.request.get("attempt", 0)) if newest is not None else 0
    rests = task.state not in LIVE
    if newest is None or attempt < task.attempt or (rests and attempt == task.attempt):
        return task if rests else msgspec.structs.replace(task, state=PENDING, stop_asked="")
    record = newest.record
    if record is not None and record.get("state") == SUCCEEDED:
        told = {name: record.get(name) for name in ("started", "ended", "exit_code")}
        return msgspec.structs.replace(
            task, state=SUCCEEDED, reason="", attempt=attempt, session=newest.number, plan={}, **told
        )
    return msgspec.structs.replace(
        task,
        state=STARTING if record is None else RUNNING,
        reason="",
        attempt=attempt,
        session=newest.number if record is not None else None,
        started=record.get("started") if record is not None else None,
        ended=None,
        exit_code=None,
        cards=tuple(map(str, newest.request.get("cards") or ())),
        reserved_mb=newest.request.get("reserved_mb"),
    )


def _remembered(path: Path) -> tuple[dict[str, Any], list[Peak]]:
    """What only the old queue knows."""
    settings: dict[str, Any] = {}
    peaks: list[Peak] = []
    with contextlib.suppress(sqlite3.Error):  # there is none
        old = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, isolation_level=None)
        with contextlib.closing(old):
            remembered = Remembered(path, old)
            with contextlib.suppress(RoostError):  # damaged: they are as nobody has set them
                settings = remembered.settings()
            with contextlib.suppress(RoostError):  # damaged: they are learned anew
                peaks = remembered.learned()
    return settings, peaks


def _put_aside(path: Path) -> Path | None:
    """Gives the old queue another name. At every moment it is whole under one of them, or it is gone: its
    last changes stand in a file beside it, which has both names meanwhile."""
    aside = path.with_name(f"{_aside(path)}{package_name.time_name(time.time())}")
    besides = [suffix for suffix in _BESIDE if path.with_name(path.name + suffix).exists()]
    for suffix in besides:
        os.link(path.with_name(path.name + suffix), aside.with_name(aside.name + suffix))
    if was_there := path.exists():
        durable.rename(path, aside)
    for suffix in besides:  # under the new queue these would be taken for its own
        path.with_name(path.name + suffix).unlink()
    durable.fsync_folder(path.parent)
    return aside if was_there else None


def _newest(path: Path) -> Path:
    """The old queue; where that is gone, what was put aside last: by one who was killed then, perhaps."""
    if path.exists():
        return path
    asides = [one for one in path.parent.glob(f"{_aside(path)}*") if not one.name.endswith(_BESIDE)]
    return max(asides, default=path)


def _aside(path: Path) -> str:
    return f"{path.name}.before-"
