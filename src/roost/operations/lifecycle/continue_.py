"""``continue``: another session of a package that stands."""

from __future__ import annotations

import filecmp
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from roost.analysis import preconditions
from roost.base.text.word_list import join_names
from roost.config import layers
from roost.config.settings import Settings, Where
from roost.operations.reading import package_schema
from roost.operations.sessions.rank_layout import RankRequest, plan_ranks, with_previous_layout
from roost.operations.sessions.session_request import (
    StartedSession,
    lock_package,
    require_startable,
    start_session,
)
from roost.package import lineage, live_progress, mirror_folders, resume_gate, snapshot
from roost.package.checkpoints import checkpoint
from roost.package.package import PackageFolder
from roost.package.project_preflight import check_settings, named_files, require_runner
from roost.package.setting_locations import setting_locations

CommandLine = Sequence[str]
_MAX_NAMES = 3


@dataclass(frozen=True, kw_only=True)
class ContinueRequest:
    """What is asked."""

    package: Path
    checkpoint: int | None = None
    """Go on from this one; None: the newest good one."""
    step: int | None = None
    """Go on from the checkpoint of this step; instead of ``checkpoint``."""
    overrides: Sequence[str] = ()
    description: str | None = None
    device: str | None = None
    """auto, cpu or cuda; None: as the session before."""
    force: bool = False
    project: Path | None = None
    """Where the project is now, for links to what was not copied; None: where it was."""
    initialize: bool = False
    """Where it has no checkpoint yet: save step 0, tell the model, and end."""
    ranks: RankRequest = field(default_factory=RankRequest)
    """How many processes, on which devices."""
    terminal: str = ""
    """A terminal for the run itself, for pdb; none when empty."""
    command: CommandLine = ()


def continue_(request: ContinueRequest) -> StartedSession:
    """Starts another session, which goes on from the newest good checkpoint.

    A finished run has nothing to do unless something was changed or a checkpoint named: then ``session``
    of the answer is None.

    Raises:
        NotFound: There is no such package, checkpoint or project.
        DamagedPackage: A file of the package is not as roost writes it.
        Refused: The package is in use, the change needs ``force``, or this machine lacks the devices.
        ConfigError: An override is wrong.
        UsageError: What is asked contradicts itself.
        OSError: The session cannot be written down.
    """
    package = package_schema.opened(request.package, to_go_on=True)
    if request.step is not None:
        request = replace(request, checkpoint=package.store().at_step(request.step).id)
    lock_fd = lock_package(package)
    try:
        return _start_next(package, lock_fd, request)
    finally:
        os.close(lock_fd)


def _start_next(package: PackageFolder, lock_fd: int, request: ContinueRequest) -> StartedSession:
    ready = next_session(package, request)
    if ready is None:
        return StartedSession(package.path, notes=[finished_note(package)])
    decided = plan_ranks(
        with_previous_layout(request.ranks, package, request.overrides),
        ready.settings,
        device=request.device or previous_device(package),
        terminal=request.terminal,
        where=ready.where,
    )
    session_cards = require_startable(decided.request, ready.settings)
    notes = [*ready.announce(), *decided.notes]
    started = start_session(
        package, lock_fd, ready.body(decided.request), ready.settings, session_cards=session_cards
    )
    started.notes = [*notes, *started.notes]
    return started


@dataclass(frozen=True)
class NextSession:
    """Another session of a package, against which nothing speaks; nothing was made for it."""

    package: PackageFolder
    request: ContinueRequest
    settings: Settings
    """Those that will be in effect."""
    project: Path
    where: Where
    _found: resume_gate.ResumeGate

    def body(self, computing: Mapping[str, Any]) -> dict[str, Any]:
        """Its request.

        Args:
            computing: The part of it that tells what it computes with.
        """
        return {
            "kind": "train",
            "command": list(self.request.command),
            "overrides": list(self.request.overrides),
            "checkpoint": self.request.checkpoint,
            "project": str(self.project),
            **computing,
            "description": self.request.description,
            "force": self._found.needs_force,
            "inexact": self._found.reasons(),
            "changed": self._found.changed_files,
            "initialize": self.request.initialize,
            "terminal": self.request.terminal,
        }

    def announce(self) -> list[str]:
        """Gets the package ready for it: its links, its description; gives what a person should hear."""
        notes = [
            *_change_notes(self._found),
            *_code_notes(self.package, self.project),
            *_renew_links(self.package, self.project),
        ]
        if self.request.description:
            self.package.describe(self.request.description)
        return notes


def next_session(package: PackageFolder, request: ContinueRequest) -> NextSession | None:
    """Another session, checked but for what it computes with; None: the run is finished. The caller holds
    the package's lock.

    Raises:
        CheckpointError: The one that is asked for is damaged.
        Refused: A change needs ``force``.
        ConfigError: An override is wrong.
        NotFound: There is no such project.
    """
    require_runner(package)
    found = resume_gate.check(package, request.overrides)
    if request.checkpoint is not None:
        checkpoint.verify(package.store().path(request.checkpoint))  # or the session would fail on it
    if package.state() == "succeeded" and request.checkpoint is None and not (found.safe or found.refused):
        return None
    found.require(force=request.force)
    lineage.require_loadable(found.refused)
    project = preconditions.project_folder(package, request.project)
    where = setting_locations(package, overrides=request.overrides)
    values = layers.apply_overrides(package.settings(), request.overrides)
    settings = check_settings(values, project=project, package=str(package.path), where=where)
    named_files(settings, root=package.path, where=where)
    copied = [*package.manifest["files"], *package.manifest["links"]]
    mirror_folders.check(settings.mirrors, copied=copied, where=where)
    return NextSession(package, request, settings, project, where, found)


def finished_note(package: PackageFolder) -> str:
    """That there is nothing to do, and what would raise the limit at which the run ended."""
    return f"the run is finished, there is nothing to do; to go on, {raise_limit_fix(package)}"


def raise_limit_fix(package: PackageFolder) -> str:
    """The limit at which a run ended, doubled: ``raise the limit: max_steps=1600``."""
    name, limit = reached_limit(package)
    if name is None:
        return "raise a limit, such as max_epochs"
    return f"raise the limit: {name}={2 * limit if isinstance(limit, int) else '...'}"


def reached_limit(package: PackageFolder) -> tuple[str, Any] | tuple[None, None]:
    """The setting at which a finished run ended, and its value; None where nobody knows."""
    settings, seen = package.settings(), live_progress.read(package.progress)
    ended_early = seen is not None and bool(seen.total_steps) and seen.step < (seen.total_steps or 0)
    waits = settings.get("early_stopping")
    if ended_early and isinstance(waits, Mapping) and isinstance(patience := waits.get("patience"), int):
        return "early_stopping.patience", patience
    for name in ("max_time",) if ended_early else ("max_epochs", "max_steps"):
        if (limit := settings.get(name)) is not None:
            return name, limit
    return None, None


def previous_device(package: PackageFolder) -> str:
    """The device that the newest session was asked to use."""
    asked = [session.request.get("device") for session in package.sessions()]
    return str(next(filter(None, reversed(asked)), "auto"))  # a program of Python asks for none


def _change_notes(found: resume_gate.ResumeGate) -> list[str]:
    """What is changed; what is inexact the run says itself."""
    return [f"changed: {resume_gate.format_difference(one)}" for one in found.safe]


def _code_notes(package: PackageFolder, project: Path) -> list[str]:
    """Whoever mends the project, and not the package, must hear which of the two runs."""
    names = [name for name in package.manifest["files"] if name.endswith(".py")]
    names = [name for name in names if _files_differ(project / name, package.path / name)]
    if not names:
        return []
    verbs = ("differs", "runs") if len(names) == 1 else ("differ", "run")
    return [f"the project's {join_names(names, _MAX_NAMES)} {verbs[0]}; the package's own {verbs[1]}"]


def _files_differ(one: Path, other: Path) -> bool:
    """Whether both are there and differ; nobody has to be able to read the project by now."""
    try:
        return not filecmp.cmp(one, other, shallow=False)
    except OSError:
        return False


def _renew_links(package: PackageFolder, project: Path) -> list[str]:
    """Points the links of a package to where the project is now; gives a note for each that still leads
    nowhere."""
    return [
        f"{name} was not copied, and its link leads nowhere; if the run needs it: --project DIR"
        for name in snapshot.renew_links(package.path, package.manifest, project)
    ]
