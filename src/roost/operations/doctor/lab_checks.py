"""Checks of the lab: daemon and server, their folder, processes that were left, runs that can continue."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from roost import __version__
from roost.base.errors import RoostError
from roost.base.system import state_folder
from roost.base.system.worker_protocol import TOKEN_VARIABLE
from roost.base.text.word_list import join_names
from roost.lab.background import background_process, daemon_presence
from roost.lab.background.background_process import ProcessFiles, ProcessRecord
from roost.lab.queue import database
from roost.lab.queue.queue_store import QueueStore
from roost.lab.queue.task import PENDING
from roost.operations import work_progress
from roost.operations.doctor.diagnosis import Diagnosis, DoctorSubject, ok, problem, warning
from roost.operations.listing.known_folders import known_folders
from roost.operations.listing.list_packages import find_packages
from roost.operations.queue.continue_interrupted import InterruptedRun, find_interrupted
from roost.package.package import PackageFolder


@dataclass(frozen=True, kw_only=True)
class LabFacts:
    """The background processes of the lab, and its folder."""

    folder: Path
    daemon: ProcessRecord | None = None
    server: ProcessRecord | None = None
    is_lost: bool = False
    """Whether the daemon was killed."""
    server_is_lost: bool = False
    pending: int = 0
    error: str = ""
    """Why the folder or the queue cannot be used."""
    fix: str = ""


def read_lab(subject: DoctorSubject) -> LabFacts:
    """Looks for daemon and server, and opens the queue if there is one."""
    folder = subject.lab_folder
    if not folder.exists():
        return LabFacts(folder=folder)
    try:
        state_folder.prepare(folder)
        pending = 0
        if database.has_existed(folder):
            with QueueStore.open(folder) as store:
                pending = store.state_counts().get(PENDING, 0)
        server = ProcessFiles.of(folder, "server")
        running = background_process.find_running(server, ProcessRecord)
        return LabFacts(
            folder=folder,
            daemon=daemon_presence.find_daemon(folder),
            server=running,
            is_lost=daemon_presence.is_lost(folder),
            server_is_lost=server.record.exists() and running is None,
            pending=pending,
        )
    except RoostError as error:
        return LabFacts(folder=folder, error=error.message, fix=error.fix or "see `roost lab status`")


def judge_lab(facts: LabFacts) -> Iterator[Diagnosis]:
    """Whether the folder is private and whole, and daemon and server run, in this version."""
    if facts.error:
        yield problem(f"{facts.error} ({facts.folder})", facts.fix)
        return
    bad = False
    for name, record, restart in (
        ("daemon", facts.daemon, "`roost lab restart`; running tasks continue"),
        ("server", facts.server, "`roost server stop`, then `roost server --detach`"),
    ):
        if record is not None and record.version != __version__:
            bad = True
            yield problem(
                f"the {name} (pid {record.pid}) is of roost {record.version}, this is {__version__}", restart
            )
    if facts.is_lost:
        bad = True
        yield warning("the daemon was killed, or went down with the machine", "`roost lab start`")
    elif facts.pending and facts.daemon is None:
        bad = True
        wait = "1 task waits" if facts.pending == 1 else f"{facts.pending:,} tasks wait"
        yield warning(f"no daemon runs, and {wait}", "`roost lab start`")
    if facts.server_is_lost:
        bad = True
        yield warning("the server was killed, or went down with the machine", "`roost server --detach`")
    if not bad:
        daemon = f"daemon pid {facts.daemon.pid}" if facts.daemon is not None else "no daemon runs"
        server = f"server pid {facts.server.pid}" if facts.server is not None else "no server"
        yield ok(f"{daemon}, {server} ({facts.folder})")


@dataclass(frozen=True, kw_only=True)
class AbandonedProcesses:
    """Processes of a session that has ended."""

    package: Path
    session: int
    pids: Sequence[int]


def read_abandoned(subject: DoctorSubject) -> list[AbandonedProcesses]:
    """Finds processes of this user that have the token of a session which has ended."""
    carriers = _token_carriers()
    found = []
    for package, number, token in _ended_sessions() if carriers else ():
        if token in carriers:
            found.append(AbandonedProcesses(package=package, session=number, pids=carriers.pop(token)))
        if not carriers:
            break
    return found


def _token_carriers() -> dict[str, list[int]]:
    """Returns the pids of this user's processes with a session's token, by the token."""
    prefix = f"{TOKEN_VARIABLE}=".encode()
    found: dict[str, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            is_own = folder.stat().st_uid == os.getuid()
            variables = (folder / "environ").read_bytes().split(b"\0") if is_own else []
        except OSError:  # it has ended
            continue
        for one in variables:
            if one.startswith(prefix):
                found.setdefault(one.removeprefix(prefix).decode(errors="replace"), []).append(
                    int(folder.name)
                )
    own = os.environ.get(TOKEN_VARIABLE)  # doctor may run in a program of a session
    return {token: pids for token, pids in found.items() if token != own}


def _ended_sessions() -> Iterator[tuple[Path, int, str]]:
    known = find_packages(known_folders()).selected
    paths = [one.folder / one.name for one in known]
    for path in work_progress.track(paths, "reading sessions"):
        # The processes of an earlier session were killed when this one started.
        for session in PackageFolder(path).sessions()[-1:]:
            if session.request.token and not session.is_live:
                yield path, session.number, session.request.token


def judge_abandoned(found: Sequence[AbandonedProcesses]) -> Iterator[Diagnosis]:
    """Whether ended sessions have left processes, which may hold cards and memory."""
    for one in found:
        pids = join_names([str(pid) for pid in one.pids])
        yield problem(
            f"processes of a session that has ended are left: {pids} ({one.package})",
            f"`roost continue {one.package}` ends them first; or: kill {' '.join(map(str, one.pids))}",
        )
    if not found:
        yield ok("no processes are left of sessions that have ended")


def read_interrupted(subject: DoctorSubject) -> list[InterruptedRun]:
    """Finds the runs of all known folders that were interrupted."""
    return find_interrupted()


def judge_interrupted(found: Sequence[InterruptedRun]) -> Iterator[Diagnosis]:
    """Whether runs were interrupted that can continue."""
    if not found:
        yield ok("no run was interrupted")
        return
    named = _shorten(one.package for one in found)
    were = "1 run was interrupted" if len(found) == 1 else f"{len(found)} runs were interrupted"
    yield warning(f"{were} and can continue: {named}", "`roost up` continues them; `--dry-run` lists them")


def _shorten(packages: Iterable[str], most: int = 3) -> str:
    names = [Path(one).name for one in packages]
    more = [f"{len(names) - most} more"] if len(names) > most else []
    return join_names(names[:most] + more)
