"""The lab of this user: opens its queue, and starts its daemon when a command needs it."""

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
from roost.base.text.typed_path import typed_path
from roost.lab.background import background_process, daemon_presence
from roost.lab.background.daemon_presence import DaemonRecord
from roost.lab.queue import database
from roost.lab.queue import rebuild as rebuilding
from roost.lab.queue.queue_store import QueueStore
from roost.lab.queue.task import ENDED, LIVE, PENDING
from roost.operations.reading.output_reader import tail_offset

_START_SECONDS = 20.0


class LabStatus(msgspec.Struct, frozen=True):
    """The state of the lab."""

    daemon: DaemonRecord | None
    tasks: dict[str, int]
    """The number of tasks by state, without the states in which there are none."""
    warm: int
    """The number of template processes: processes with torch imported, for warm starts."""
    folder: str


class RebuildResult(msgspec.Struct, frozen=True):
    """The result of rebuilding the queue."""

    tasks: dict[str, int]
    """As in `LabStatus`."""
    old_queue: Path | None
    """The renamed old queue; None if there was none."""
    notes: Sequence[str] = ()
    """One line for each task that was skipped, and for each that can never start."""


def open_queue() -> QueueStore:
    """Opens the queue, and creates it if there is none.

    Raises:
        Refused: Its folder is not suitable, or the queue is damaged.
        RoostError: It cannot be written.
    """
    return QueueStore.open()


@contextlib.contextmanager
def locked_queue() -> Iterator[QueueStore]:
    """Opens the queue for a change, which waits for a rebuild in progress and is then made in the new queue.

    Raises:
        Refused, RoostError: As `open_queue`.
    """
    with rebuilding.rebuild_lock(state_folder.lab_folder()), open_queue() as store:
        yield store


def notify_daemon(done: str) -> list[str]:
    """Wakes or starts the daemon after a change of the queue was committed. A daemon that does not start, and
    Ctrl-C meanwhile, are no failure of that change: the next daemon finds it.

    Args:
        done: The change, for people: ``queued``.

    Returns:
        A note for the user if no daemon has the change yet, else nothing.
    """
    try:
        ensure_daemon()
    except (RoostError, OSError) as error:
        return [f"{done}; no daemon carries it out yet: {error}"]
    except KeyboardInterrupt:
        return [f"{done}; interrupted before the lab's daemon had answered: `roost lab status`"]
    return []


def ensure_daemon() -> DaemonRecord:
    """Wakes the daemon, or starts it if there is none, and returns its record.

    Raises:
        Refused: The running daemon is of another version, or works with another queue file than the current.
        RoostError: It did not start.
    """
    folder = state_folder.lab_folder()
    found = daemon_presence.find_daemon(folder)
    if found is None:
        return start()
    if found.version != __version__:
        raise Refused(
            f"the lab's daemon (pid {found.pid}) is of roost {found.version}, this is {__version__}",
            fix="`roost lab restart`; running tasks continue",
        )
    _require_its_queue(found, folder)
    with open_queue() as store:
        store.wake_daemon()
    return found


def start() -> DaemonRecord:
    """Starts the daemon, unless one runs, and waits until it has taken over the running tasks.

    Raises:
        Refused: The lab's folder is not suitable, or the daemon refused to start.
        RoostError, OSError: It did not start.
    """
    folder = state_folder.lab_folder()
    command = [sys.executable, "-P", "-m", "roost.lab.daemon", str(folder)]
    with rebuilding.rebuild_lock(folder):
        failed = background_process.start(
            command, daemon_presence.files(folder).log, what="the lab's daemon", seconds=_START_SECONDS
        )
    found = daemon_presence.find_daemon(folder)
    if (
        found is None
    ):  # of several that are started at the same time all but one end; each caller finds that one
        log = daemon_presence.files(folder).log
        gone = RoostError("the lab's daemon has ended already", where=log, fix="start it again")
        raise failed or gone
    return found


def restart_lost_daemon() -> str | None:
    """Starts the daemon if one ran that was killed together with its watchdog, or went down with the machine:
    pending tasks would wait for the next command that changes one. Returns a note for the user; None if a
    daemon runs."""
    folder = state_folder.lab_folder()
    if daemon_presence.find_daemon(folder) is not None:
        return None
    if not daemon_presence.is_lost(folder):
        return "no daemon runs, so no task is started: roost lab start"
    try:
        found = start()
    except (RoostError, OSError) as error:
        return f"no daemon runs, so no task is started: {error}"
    return f"the lab's daemon was gone, and is started again (pid {found.pid}): the tasks continue"


def stop() -> DaemonRecord | None:
    """Ends the daemon, waits for its end, and returns its record; None if there was none. Running tasks
    continue.

    Raises:
        Refused: The lab's folder belongs to another user.
        RoostError: It does not end.
    """
    folder = state_folder.lab_folder()
    state_folder.require_owner(folder)
    return daemon_presence.stop(folder)


def status() -> LabStatus:
    """Returns the state of the lab. Does not create a queue.

    Raises:
        Refused: Its folder is not suitable, or the queue is damaged, missing, or not the one of the daemon.
        RoostError: It cannot be read.
    """
    folder = state_folder.lab_folder()
    state_folder.require_owner(folder)
    found = daemon_presence.find_daemon(folder)
    if found is not None:
        _require_its_queue(found, folder)
    return LabStatus(
        found, _state_counts(folder), _count_templates() if found is not None else 0, str(folder)
    )


def _count_templates() -> int:
    from roost.supervisor.forkserver import template_client  # slow; only `status` needs it

    try:
        found = template_client.template_folder().iterdir()
        return sum(path.is_socket() and not path.suffix for path in found)  # not those for guards
    except OSError:  # no template process ever ran
        return 0


def log(lines: int) -> list[str]:
    """Returns at most the last ``lines`` lines of the log of this lab's daemons.

    Raises:
        Refused: The lab's folder is not suitable.
        OSError: The log cannot be read.
    """
    folder = state_folder.lab_folder()
    state_folder.require_owner(folder)
    path = daemon_presence.files(folder).log
    if not path.exists():
        return []
    with path.open("rb") as file:
        file.seek(tail_offset(path, lines))
        return file.read().decode(errors="replace").splitlines()


def rebuild(more: Sequence[Path] = (), *, lost: Path | None = None) -> RebuildResult:
    """Rebuilds the queue from the packages (`roost.lab.queue.rebuild`), and starts the daemon if there are
    tasks that have not ended.

    Args:
        more: Packages, or folders of packages, in addition to those that the queue has ever known.
        lost: The folder of a lab that no longer exists, or its ROOST_STATE. Its tasks are taken over.

    Raises:
        NotFound: A folder of ``more`` does not exist.
        Refused: A daemon runs, the lab's folder is not suitable, or the lost lab still has its queue.
        RoostError, OSError: The new queue cannot be written, or the daemon did not start.
    """
    for path in more:
        if not path.is_dir():
            raise NotFound("there is no such folder", received=str(path))
    folder = state_folder.lab_folder()
    if lost is not None:
        lost = _lost_lab_folder(typed_path(lost).absolute(), folder)
    if (found := daemon_presence.find_daemon(folder)) is not None:
        what = f"the lab's daemon (pid {found.pid}) works with the queue"
        raise Refused(what, fix="run `roost lab stop` first; running tasks continue")
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
    """Returns the folder of a lab that no longer exists. ``given`` is that folder, or its ROOST_STATE."""
    folder = given if given.name == own.name else given / own.name
    if folder != own and (folder / database.FILE_NAME).exists():
        fix = f"look at its tasks: ROOST_STATE={shlex.quote(str(folder.parent))} roost tasks"
        raise Refused("this lab still has its queue", setting="--take-over", received=str(given), fix=fix)
    return folder


def _require_its_queue(found: DaemonRecord, folder: Path) -> None:
    path = folder / database.FILE_NAME
    if found.queue and found.queue != daemon_presence.identity(path):
        what = f"the queue was removed or replaced while the lab's daemon (pid {found.pid}) works with it"
        fix = "`roost lab stop`, then `roost lab rebuild`; running tasks continue, pending tasks stay pending"
        raise Refused(what, where=path, fix=fix)


def _state_counts(folder: Path) -> dict[str, int]:
    if not database.has_existed(folder):
        return {}
    with open_queue() as store:
        found = store.state_counts()
    return {state: found[state] for state in (PENDING, *LIVE, *ENDED) if state in found}
