"""The operation ``debug``: prepares the program that replaces the user's own process and stops in one step of
a package."""

from __future__ import annotations

import functools
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import NoReturn

import msgspec

from roost.analysis import preconditions
from roost.base.errors import NotFound
from roost.devices.lease import Leases
from roost.operations.reading import package_schema
from roost.operations.sessions import foreground_lease
from roost.operations.sessions.rank_layout import several_ranks_note
from roost.operations.sessions.session_request import worker_environment
from roost.package import lineage, live_progress
from roost.package.checkpoints import selection
from roost.package.kinds import TaskKind
from roost.package.package import PackageFolder
from roost.package.results import black_box
from roost.package.results.black_box import BlackBox, DebugTarget


@dataclass(frozen=True, kw_only=True)
class DebugRequest:
    """A request to stop in one step."""

    package: Path
    step: int | None = None
    """Counted from 1; None: the one that failed last."""
    checkpoint: str | int | None = None
    """Replay from this checkpoint: ``best`` or an id; None or ``last``: the black box, or the newest
    checkpoint before the step."""
    replay: bool = False
    """Replay the steps before it, even if the black box holds the state."""
    begin: bool = False
    """Stop before the step, not where it fails."""
    device: str | None = None
    """auto, cpu, cuda, mps or xpu; None: as in the session of the step."""
    project: Path | None = None
    """The current folder of the project; None: the folder at the start of the run."""


@dataclass(frozen=True)
class DebugProgram:
    """A program that replaces the caller's process and uses its terminal."""

    argv: list[str]
    env: dict[str, str]
    folder: Path
    """The working directory."""
    notes: list[str] = field(default_factory=list)
    """Notes for the user, one line each."""
    leases: Leases = field(default_factory=lambda: Leases("", ()))
    """The leases of its card. The program inherits their descriptors, because no supervisor holds them."""

    def replace_process(self) -> NoReturn:
        """Replaces this process by the program."""
        for fd in self.leases.fds:
            os.set_inheritable(fd, True)
        os.chdir(self.folder)
        os.execve(self.argv[0], self.argv, self.env)


def debug(request: DebugRequest) -> DebugProgram:
    """Finds the step, and takes a lease of the card on which the step is computed. It takes no lock and
    changes nothing in the package, which may be running or read-only.

    Raises:
        NotFound: The package, checkpoint or project does not exist, or no step of the package failed.
        DamagedPackage: A file of the package is not as roost writes it.
        CheckpointError: The checkpoint was not written by roost.
        Refused: The package is a file, or has no Runner.
        ConfigError: The package's settings do not fit this version.
        CardsBusy: Other processes hold all cards.
    """
    package = preconditions.open_with_runner(
        request.package, by=functools.partial(package_schema.open_checked, to_continue=True)
    )
    preconditions.require_native(
        package,
        cause="the steps of a project of DLNest's contract are not replayed",
        fix="write breakpoint() into the project, and start `roost run` in a terminal",
    )
    project = preconditions.project_folder(package, request.project)
    checkpoint = selection.checkpoint_id(package, request.checkpoint)
    if checkpoint is not None:
        preconditions.check_checkpoints(package, checkpoint)
    box = _find_black_box(package, request.step)
    step = request.step if box is None else box.note.step
    assert step is not None
    _require_own_step(package, step)
    session = box.note.session if box is not None else _session_of_step(package, step)
    package_schema.checked_settings(package, project)
    device = request.device or _device_of_session(package, session)
    visit = DebugTarget(
        step=step,
        session=session,
        box=box.path.name if box is not None else None,
        checkpoint=checkpoint,
        replay=request.replay,
        begin=request.begin or box is None,
        device=device,
        project=str(project),
    )
    visit_json = msgspec.json.encode(visit).decode()
    session_cards = foreground_lease.choose_one_card(device)
    leases = foreground_lease.take_leases(session_cards, package.path)
    env = worker_environment(cpu=device == "cpu", cards=session_cards.ids)
    return DebugProgram(
        [sys.executable, "-P", "-m", "roost.worker", str(package.path), TaskKind.DEBUG, visit_json],
        {**env, **(leases.environment() if leases.fds else {})},
        package.path,
        [*_notes(package, step, session), *session_cards.notes],
        leases,
    )


def _find_black_box(package: PackageFolder, step: int | None) -> BlackBox | None:
    if step is not None:
        return black_box.newest_box_of_step(package.blackbox, step)
    box = black_box.newest_box(package.blackbox)
    if box is None:
        sessions = package.sessions()
        several = several_ranks_note(sessions[-1].request, "{} keep no black box") if sessions else []
        raise NotFound(
            several[0] if several else "the black box of the package holds no failed step",
            where=package.path,
            fix=f"name the step to stop at: roost debug {quote(str(package.path))} STEP",
        )
    return box


def _require_own_step(package: PackageFolder, step: int) -> None:
    """Raises if the step was taken before the fork: a fork can replay its own steps only."""
    parent = lineage.parent_of(package)
    if parent is not None and step <= parent.step:
        raise NotFound(
            f"step {step} is before the fork at step {parent.step}, in {parent.package}",
            where=package.path,
            fix=f"roost debug {quote(str(parent.path))} {step}",
        )


def _session_of_step(package: PackageFolder, step: int) -> int:
    """Returns the session that took the step, or would have taken it."""
    began = [session for session, start in package.records().starts if start < step]
    return max(began, default=1)


def _device_of_session(package: PackageFolder, session: int) -> str:
    devices = [one.request.get("device") for one in package.sessions() if one.number <= session]
    return str(next(filter(None, reversed(devices)), "auto"))


def _notes(package: PackageFolder, step: int, session: int) -> list[str]:
    found, notes = live_progress.read(package.progress), []
    if found is not None and step > found.step + 1:
        notes.append(
            f"the run itself has reached only step {found.step}; the steps after it are computed here first"
        )
    several = "{} took it; here one process takes all of each batch, so the last bits may differ"
    requests = [one.request for one in package.sessions() if one.number == session]
    return [*notes, *(several_ranks_note(requests[0], several) if requests else [])]
