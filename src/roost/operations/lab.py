"""The lab of this user: its queue, opened, and its daemon, started when somebody needs it."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from roost import __version__
from roost.base.errors import NotFound, Refused, RoostError
from roost.base.system import state_folder
from roost.lab.background import background_process, daemon_presence
from roost.lab.background.daemon_presence import DaemonRecord
from roost.lab.queue import database, package_roots, task_file
from roost.lab.queue import rebuild as rebuilding
from roost.lab.queue.queue_store import QueueStore
from roost.lab.queue.task import ENDED, LIVE, PENDING, Task
from roost.operations.reading.output_reader import tail_offset

LOG_NAME = "daemon.log"
_START_SECONDS = 20.0
_MAX_PARALLEL = 8


class LabStatus(msgspec.Struct, frozen=True):
    """How the lab stands."""

    daemon: DaemonRecord | None
    tasks: dict[str, int]
    """How many are in each state in which there are some."""
    warm: int
    """Processes that wait with torch imported, for warm starts."""
    folder: str


class RebuildResult(msgspec.Struct, frozen=True):
    """What was found for the queue."""

    tasks: dict[str, int]
    """As in `LabStatus`."""
    aside: Path | None
    """Where the old queue is; None if there was none."""
    notes: Sequence[str] = ()
    """What was passed over, and what will never start; a line each."""


def open_queue() -> QueueStore:
    """The queue.

    Raises:
        Refused: Its folder will not do, or it is damaged.
        RoostError: It cannot be written.
    """
    return QueueStore.open()


@contextlib.contextmanager
def locked_queue() -> Iterator[QueueStore]:
    """The queue, for whoever changes it; where it is made anew it is the new one.

    Raises:
        Refused, RoostError: As `open_queue`.
    """
    with rebuilding.rebuild_lock(state_folder.lab_folder()), open_queue() as store:
        yield store


def enqueue(tasks: Sequence[Task]) -> None:
    """Queues tasks whose packages stand, and has the daemon look at them.

    Raises:
        Refused: One waits for what will never come; or the daemon is of another version, or cannot start.
        OSError: A package cannot be written.
    """
    with locked_queue() as store:
        package_roots.add(store.folder, [Path(task.package) for task in tasks])
        _announce_tasks(tasks, store.folder)
        store.submit(tasks)
        for task in tasks:
            with contextlib.suppress(OSError):  # it is queued; what is announced suffices to start it
                task_file.confirm(task)
    ensure_daemon()


def _announce_tasks(tasks: Sequence[Task], folder: Path) -> None:
    if len(tasks) == 1:
        task_file.announce(tasks[0], folder)
        return
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(_MAX_PARALLEL) as pool:  # each waits for the disk
        list(pool.map(lambda task: task_file.announce(task, folder), tasks))


def ensure_daemon() -> DaemonRecord:
    """Wakes the daemon; starts it if there is none. Gives who it is.

    Raises:
        Refused: The one that runs is of another version, or its queue is not the one that stands here.
        RoostError: It did not start.
    """
    folder = state_folder.lab_folder()
    found = daemon_presence.find_daemon(folder)
    if found is None:
        return start()
    if found.version != __version__:
        raise Refused(
            f"the lab's daemon (pid {found.pid}) is of roost {found.version}, and this is {__version__}",
            fix="`roost lab restart`: what runs goes on",
        )
    _require_its_queue(found, folder)
    with open_queue() as store:
        store.wake_daemon()
    return found


def start() -> DaemonRecord:
    """Starts the daemon, unless there is one, and waits until it has taken over whatever runs.

    Raises:
        Refused: The lab's folder will not do, or the daemon refused to start.
        RoostError: It did not start.
        OSError: Likewise.
    """
    folder = state_folder.lab_folder()
    command = [sys.executable, "-P", "-m", "roost.lab.daemon", str(folder)]
    with rebuilding.rebuild_lock(folder):
        failed = background_process.start(
            command, folder / LOG_NAME, what="the lab's daemon", seconds=_START_SECONDS
        )
    found = daemon_presence.find_daemon(folder)
    if found is None:  # several may start one at the same time: all but one of those end, and all have it
        gone = RoostError("the lab's daemon has ended already", where=folder / LOG_NAME, fix="start it again")
        raise failed or gone
    return found


def stop() -> DaemonRecord | None:
    """Ends the daemon, and waits for that; whatever runs goes on. Gives which it was, None if there was none.

    Raises:
        RoostError: It does not end.
    """
    return daemon_presence.stop(state_folder.lab_folder())


def status() -> LabStatus:
    """How the lab stands; makes no queue where there is none.

    Raises:
        Refused: Its folder will not do, or the queue is damaged, gone, or not the one of the daemon.
        RoostError: It cannot be read.
    """
    folder = state_folder.lab_folder()
    found = daemon_presence.find_daemon(folder)
    if found is not None:
        _require_its_queue(found, folder)
    return LabStatus(
        found, _state_counts(folder), _count_templates() if found is not None else 0, str(folder)
    )


def _count_templates() -> int:
    from roost.supervisor.forkserver import warm_templates  # whoever submits does not wait for it

    try:
        return sum(path.is_socket() for path in warm_templates.template_folder().iterdir())
    except OSError:  # there never was one
        return 0


def log(lines: int) -> list[str]:
    """The last lines of what the daemons of this lab wrote down; none where they had nothing to tell.

    Args:
        lines: How many at most.

    Raises:
        Refused: Its folder will not do.
        OSError: It cannot be read.
    """
    path = state_folder.lab_folder() / LOG_NAME
    if not path.exists():
        return []
    with path.open("rb") as file:
        file.seek(tail_offset(path, lines))
        return file.read().decode(errors="replace").splitlines()


def rebuild(more: Sequence[Path] = (), *, lost: Path | None = None) -> RebuildResult:
    """Makes the queue anew from the packages (`roost.lab.queue.rebuild`), and starts the daemon for what has
    not
    ended.

    Args:
        more: Packages, or folders that hold some, beside those that the queue has ever heard of.
        lost: Another folder of a lab, or what ROOST_STATE was then, whose tasks are taken over, too.

    Raises:
        NotFound: One of these is not there.
        Refused: A daemon runs, the folder will not do, or the other one still has its queue.
        RoostError: The new queue cannot be written, or the daemon did not start.
        OSError: Likewise.
    """
    for path in more:
        if not path.is_dir():
            raise NotFound("there is no such folder", received=str(path))
    folder = state_folder.lab_folder()
    if lost is not None:
        lost = _lost_lab_folder(lost.expanduser().absolute(), folder)
    if (found := daemon_presence.find_daemon(folder)) is not None:
        what = f"the lab's daemon (pid {found.pid}) works with the queue"
        raise Refused(what, fix="`roost lab stop` first: what runs goes on")
    with rebuilding.rebuild_lock(folder, is_exclusive=True):
        fd = daemon_presence.lock(folder)
        try:
            made = rebuilding.rebuild(folder, more, lost_lab=lost)
        finally:
            os.close(fd)
    tasks = _state_counts(folder)
    if tasks.keys() - set(ENDED):
        ensure_daemon()
    return RebuildResult(tasks, made.old_queue, made.notes)


def _lost_lab_folder(given: Path, own: Path) -> Path:
    """The folder of a lab that is no more, by that or by its ROOST_STATE."""
    folder = given if given.name == own.name else given / own.name
    if folder != own and (folder / database.FILE_NAME).exists():
        fix = f"look there: ROOST_STATE={shlex.quote(str(folder.parent))} roost tasks"
        raise Refused("this lab still has its queue", setting="--take-over", received=str(given), fix=fix)
    return folder


def _require_its_queue(found: DaemonRecord, folder: Path) -> None:
    path = folder / database.FILE_NAME
    if found.queue and found.queue != daemon_presence.identity(path):
        what = f"the queue was removed or replaced while the lab's daemon (pid {found.pid}) works with it"
        fix = "`roost lab stop`, then `roost lab rebuild`: what runs goes on, what waited waits"
        raise Refused(what, where=path, fix=fix)


def _state_counts(folder: Path) -> dict[str, int]:
    if not database.has_existed(folder):
        return {}
    with open_queue() as store:
        found = store.state_counts()
    return {state: found[state] for state in (PENDING, *LIVE, *ENDED) if state in found}
