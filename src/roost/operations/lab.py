"""The lab of this user: its queue, opened, and its daemon, started when somebody needs it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from roost import __version__
from roost.base import process
from roost.base.errors import NotFound, Refused, RoostError
from roost.lab import database, place, presence, roots, ticket
from roost.lab import rebuild as rebuilding
from roost.lab.presence import About
from roost.lab.store import Store
from roost.lab.task import ENDED, LIVE, PENDING, Task

LOG = "daemon.log"
_START_SECONDS = 20.0
_END_SECONDS = 20.0
_TICK_SECONDS = 0.02


class Status(msgspec.Struct, frozen=True):
    """How the lab stands."""

    daemon: About | None
    tasks: dict[str, int]
    """How many are in each state in which there are some."""
    folder: str


class Rebuilt(msgspec.Struct, frozen=True):
    """What was found for the queue."""

    tasks: dict[str, int]
    """As in `Status`."""
    aside: Path | None
    """Where the old queue is; None if there was none."""


def opened() -> Store:
    """The queue.

    Raises:
        Refused: Its folder will not do, or it is damaged.
        RoostError: It cannot be written.
    """
    return Store.open()


def enqueue(tasks: Sequence[Task]) -> None:
    """Queues tasks whose packages stand, and has the daemon look at them.

    Raises:
        Refused: One waits for what will never come; or the daemon is of another version, or cannot start.
        OSError: A package cannot be written.
    """
    with opened() as store:
        roots.note(store.folder, [Path(task.package) for task in tasks])
        for task in tasks:
            ticket.write(task)
        store.submit(tasks)
    ensure()


def ensure() -> About:
    """Wakes the daemon; starts it if there is none. Gives who it is.

    Raises:
        Refused: The one that runs is of another version.
        RoostError: It did not start.
    """
    folder = place.folder()
    found = presence.about(folder)
    if found is None:
        return start()
    if found.version != __version__:
        raise Refused(
            f"the lab's daemon (pid {found.pid}) is of roost {found.version}, and this is {__version__}",
            fix="`roost lab stop` and `roost lab start`: what runs goes on",
        )
    with opened() as store:
        store.wake()
    return found


def start() -> About:
    """Starts the daemon, unless there is one, and waits until it has taken over whatever runs.

    Raises:
        Refused: The lab's folder will not do.
        RoostError: It did not start.
        OSError: Likewise.
    """
    folder = place.folder()
    place.prepare(folder)
    said = _spawn(folder)
    found = presence.about(folder)
    if found is None:  # several may start one at the same time: all but one of those end, and all have it
        why = said or f"it said nothing within {_START_SECONDS:g} s"
        raise RoostError(
            f"the lab's daemon did not start: {why}",
            where=folder / LOG,
            fix="try again; its log may tell more",
        )
    return found


def stop() -> About | None:
    """Ends the daemon, and waits for that; whatever runs goes on. Gives which it was, None if there was none.

    Raises:
        RoostError: It does not end.
    """
    found = presence.about(place.folder())
    if found is None:
        return None
    process.send(signal.SIGTERM, found.pid, found.start_ticks, found.boot_id)
    deadline = time.monotonic() + _END_SECONDS
    while found.lives:
        if time.monotonic() > deadline:
            raise RoostError(
                f"the lab's daemon (pid {found.pid}) does not end",
                fix=f"kill -9 {found.pid}: nothing is lost",
            )
        time.sleep(_TICK_SECONDS)
    return found


def status() -> Status:
    """How the lab stands; makes no queue where there is none.

    Raises:
        Refused: Its folder will not do, or the queue is damaged.
        RoostError: It cannot be read.
    """
    folder = place.folder()
    return Status(presence.about(folder), _counted(folder), str(folder))


def rebuild(more: Sequence[Path] = ()) -> Rebuilt:
    """Makes the queue anew from the packages (`roost.lab.rebuild`), and starts the daemon for what has not
    ended.

    Args:
        more: Packages, or folders that hold some, beside those that the queue has ever heard of.

    Raises:
        NotFound: One of these is not there.
        Refused: A daemon runs, or the folder will not do.
        RoostError: The new queue cannot be written, or the daemon did not start.
        OSError: Likewise.
    """
    for path in more:
        if not path.is_dir():
            raise NotFound("there is no such folder", received=str(path))
    folder = place.folder()
    if (found := presence.about(folder)) is not None:
        what = f"the lab's daemon (pid {found.pid}) works with the queue"
        raise Refused(what, fix="`roost lab stop` first: what runs goes on")
    fd = presence.lock(folder)
    try:
        aside = rebuilding.rebuild(folder, more).aside
    finally:
        os.close(fd)
    tasks = _counted(folder)
    if tasks.keys() - set(ENDED):
        ensure()
    return Rebuilt(tasks, aside)


def _counted(folder: Path) -> dict[str, int]:
    if not (folder / database.NAME).exists():
        return {}
    with opened() as store:
        found = Counter(task.state for task in store.tasks())
    return {state: found[state] for state in (PENDING, *LIVE, *ENDED) if found[state]}


def _spawn(folder: Path) -> str:
    """Starts one and waits until it is ready, or has ended; gives what it said then."""
    ready_fd, its_fd = os.pipe()
    try:
        with (folder / LOG).open("ab") as log:
            child = subprocess.Popen(
                [sys.executable, "-P", "-m", "roost.lab.daemon", str(folder), str(its_fd)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.PIPE,
                cwd="/",
                start_new_session=True,
                pass_fds=[its_fd],
            )
    finally:
        os.close(its_fd)
    poller = select.poll()
    poller.register(ready_fd, select.POLLIN)
    line = os.read(ready_fd, 16) if poller.poll(_START_SECONDS * 1000) else b""
    os.close(ready_fd)
    assert child.stderr is not None
    with child.stderr:
        if line:
            child.returncode = 0  # it outlives us: nobody here waits for its end
            return ""
        child.kill()
        return child.communicate()[1].decode(errors="replace").strip()
