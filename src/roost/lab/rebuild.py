"""``lab rebuild``: a new queue from what the packages tell, in the place of one that is damaged or gone."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from roost.base import durable
from roost.base.errors import RoostError
from roost.lab import database, place, roots, ticket
from roost.lab.remembered import Peak, Remembered
from roost.lab.store import Store
from roost.lab.task import LIVE, PENDING, RUNNING, STARTING, Task
from roost.package import names, sessions

_BESIDE = ("-wal", "-shm")


class Rebuilt(NamedTuple):
    """What has become of a queue."""

    tasks: int
    """That it has now."""
    aside: Path | None
    """Where the old one is; None if there was none."""


def rebuild(folder: Path, more: Iterable[Path] = ()) -> Rebuilt:
    """Makes the queue anew. What waited waits, what runs is taken over with its cards, what has ended stays
    so. Settings and measured memory come from the old queue, as far as it can be read. No package holds an
    environment: what waits is started with that of the caller.

    The caller makes sure that no daemon uses the folder.

    Args:
        folder: The lab's.
        more: Packages, or folders that hold some, beside those that the queue has ever heard of.

    Raises:
        Refused: The folder will not do.
        RoostError: The new queue cannot be written; the old one still stands.
        OSError: Likewise.
    """
    place.prepare(folder)
    tasks = _tasks(_packages([*roots.read(folder), *more]))
    path = folder / database.NAME
    with place.alone(folder):
        settings, peaks = _remembered(path)
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
    roots.note(folder, [Path(task.package) for task in tasks])
    return Rebuilt(len(tasks), aside)


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


def _tasks(packages: Iterable[Path]) -> list[Task]:
    """In the order in which they were submitted. Of a package and its copies the one tells that was first."""
    found: dict[str, ticket.Ticket] = {}
    for package in packages:
        for one in ticket.read_all(package):
            if one.task.id not in found or one.at_home:
                found[one.task.id] = one
    tasks = [_as_it_is(_with_environment(one.task)) for one in found.values()]
    return sorted(tasks, key=lambda task: (task.submitted, task.id))


def _with_environment(task: Task) -> Task:
    if not task.plan:
        return task
    return msgspec.structs.replace(task, plan={**task.plan, ticket.ENVIRONMENT: dict(os.environ)})


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
            with contextlib.suppress(RoostError):
                settings = remembered.settings()
            with contextlib.suppress(RoostError):
                peaks = remembered.learned()
    return settings, peaks


def _put_aside(path: Path) -> Path | None:
    """Gives the old queue a second name. Its own it keeps until the new one takes that: whoever opened the
    folder in between would begin a third."""
    if not path.exists():
        return None
    aside = path.with_name(f"{path.name}.before-{names.time_name(time.time())}")
    os.link(path, aside)
    for suffix in _BESIDE:  # under the new queue these would be taken for its own
        beside = path.with_name(path.name + suffix)
        if beside.exists():
            durable.rename(beside, aside.with_name(aside.name + suffix))
    return aside
