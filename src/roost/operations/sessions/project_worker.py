"""Workers on a temporary copy of a project; for packages see `package_worker`."""

from __future__ import annotations

import dataclasses
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from roost.lab.sessions.session_control import request_stop
from roost.operations.sessions import foreground_lease
from roost.operations.sessions.foreground_lease import SessionCards
from roost.operations.sessions.running_session import RunningSession, running_session
from roost.operations.sessions.scratch_folder import remove_abandoned, scratch_folder
from roost.operations.sessions.session_request import limits_of_attended, start_worker
from roost.package.kinds import TaskKind
from roost.package.package_draft import TrainingDraft
from roost.supervisor.guard_start import GuardProcess


class StartedWorker(NamedTuple):
    """A worker and its guard process."""

    running: RunningSession
    process: GuardProcess
    """The caller has to wait for it."""


@contextmanager
def worker_on_copy(
    plan: TrainingDraft,
    task: TaskKind,
    *,
    device: str = "auto",
    command: Sequence[str] = (),
    session_cards: SessionCards = SessionCards(),  # noqa: B008  - immutable
    request: Mapping[str, Any] = MappingProxyType({}),
) -> Iterator[StartedWorker]:
    """Copies the project as `run` would, to a folder that is removed at the end, and starts a worker there.

    Nothing is written into ``save_root``. The worker ends with the block, or when this process is gone.

    Args:
        plan: What to copy.
        task: The worker's argument in place of a session number; also the kind of its session.
        device: auto, cpu, cuda, mps or xpu.
        command: The command line as typed.
        session_cards: The cards of the worker.
        request: Further fields of the session's request.

    Raises:
        CardsBusy: Another process has taken its card meanwhile.
        OSError: The project cannot be copied.
        RoostError: The supervisor did not start.
    """
    remove_abandoned()
    with (
        scratch_folder() as (place, lock_fd),
        killed_at_exit(
            _start(plan, task, device, command, session_cards, request, place, lock_fd)
        ) as started,
    ):
        yield started


@contextmanager
def killed_at_exit(started: StartedWorker) -> Iterator[StartedWorker]:
    """Kills the worker at the end of the block, unless it has ended."""
    try:
        yield started
    finally:
        if started.process.poll() is None:
            request_stop(started.running.session(), now=True)
            started.process.wait()


def _start(
    plan: TrainingDraft,
    task: TaskKind,
    device: str,
    command: Sequence[str],
    session_cards: SessionCards,
    request: Mapping[str, Any],
    place: Path,
    lock_fd: int,
) -> StartedWorker:
    start = time.monotonic()
    package = dataclasses.replace(plan, root=place).create(task, command=command)
    copied = {"files": len(plan.selection.files), "seconds": time.monotonic() - start}
    token = secrets.token_hex(16)
    number = package.new_session(
        {
            **request,
            "kind": task,
            "command": list(command),
            "overrides": [],
            "project": str(plan.project),
            "device": device,
            "copied": copied,
            "token": token,
        }
    )
    running = dataclasses.replace(running_session(package, number), lock=None)  # that of ``place`` is held
    with closing(foreground_lease.take_leases(session_cards, plan.project)) as leases:
        process = start_worker(
            running,
            task,
            token=token,
            lock_fd=lock_fd,
            cpu=device == "cpu",
            cards=session_cards.ids,
            leases=leases,
            limits=limits_of_attended(plan.settings.limits),
            stacks=str(package.path / "sessions" / f"{number}.stacks.txt"),
        )
    return StartedWorker(running, process)
