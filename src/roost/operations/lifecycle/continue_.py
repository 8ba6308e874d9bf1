"""The operation ``continue``: another session of an existing package."""

from __future__ import annotations

import filecmp
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from roost.analysis import preconditions
from roost.base.errors import Refused
from roost.base.text.word_list import join_names
from roost.config.other_tools import foreign_keys
from roost.config.run_settings import RunSettings
from roost.config.settings import Where
from roost.operations.lifecycle import run_limits
from roost.operations.programs.continue_program import continue_program
from roost.operations.reading import package_schema
from roost.operations.sessions import archive_requirements
from roost.operations.sessions.rank_layout import (
    RankRequest,
    plan_ranks,
    previous_device,
    with_previous_layout,
)
from roost.operations.sessions.session_request import (
    StartedSession,
    lock_package,
    require_startable,
    start_session,
)
from roost.package import lineage, sessions, snapshot
from roost.package.checkpoints import checkpoint, pruning, selection
from roost.package.kinds import PackageKind, TaskKind
from roost.package.package import PackageFolder, with_overrides
from roost.package.project_preflight import (
    check_mirror_paths,
    code_of,
    parse_package_settings,
    require_runner,
)
from roost.package.resume import resume_gate
from roost.package.session_schema import SessionRequest
from roost.package.setting_locations import setting_locations

CommandLine = Sequence[str]
_MAX_NAMES = 3
_SETTINGS_OF_THE_END = ("test_at_end", "checkpoint", "mirrors")
"""A session that trains no step applies these nevertheless, so a change of them is worth one."""


@dataclass(frozen=True, kw_only=True)
class ContinueRequest:
    """A request to continue a package."""

    package: Path
    checkpoint: str | int | None = None
    """Continue from this checkpoint: ``last``, ``best`` or an id; None: ``last``, the newest good one."""
    step: int | None = None
    """Continue from the checkpoint of this step, instead of ``checkpoint``."""
    overrides: Sequence[str] = ()
    description: str | None = None
    device: str | None = None
    """auto, cpu, cuda, mps or xpu; None: as in the session before."""
    force: bool = False
    steal: bool = False
    """Take the package over from a living session of another machine, which stops."""
    trust: bool = False
    """Read pickles of its checkpoint that are not signed with the key of this user."""
    project: Path | None = None
    """The current folder of the project, for links to what was not copied; None: the folder at the start of
    the run."""
    initialize: bool = False
    """For a package without checkpoints: save step 0, describe the model, and end."""
    ranks: RankRequest = field(default_factory=RankRequest)
    """How many processes, on which devices."""
    terminal: str = ""
    """A terminal for the run itself, for pdb; empty: none."""
    command: CommandLine = ()


def continue_(request: ContinueRequest) -> StartedSession:
    """Starts another session, which resumes from the newest good checkpoint.

    A finished run whose limits leave nothing to train is not started: ``session`` of the result is None, and
    a note names the override that would train more.

    Raises:
        NotFound: There is no such package, checkpoint, project or archive of ``data.stage``.
        DamagedPackage: A file of the package is not as roost writes it.
        CheckpointError: The named checkpoint is damaged, or all checkpoints are gone.
        Refused: The package is in use, here or on another machine, the change needs ``force``, or this
            machine lacks the devices.
        ConfigError: An override is wrong.
        UsageError: Options contradict each other.
        OSError: The request of the session cannot be written.
    """
    package = package_schema.open_checked(request.package, to_continue=True)
    if PackageKind.of(package.request) is PackageKind.COMMAND:
        return continue_program(package, request)
    if request.step is not None:
        request = replace(request, checkpoint=package.store().at_step(request.step).id)
    lock_fd = lock_package(package, steal=request.steal)
    try:
        return _start_next(package, lock_fd, request)
    finally:
        os.close(lock_fd)


def _start_next(package: PackageFolder, lock_fd: int, request: ContinueRequest) -> StartedSession:
    ready = next_session(package, request)
    if ready is None:
        return StartedSession(package.path, notes=[finished_note(package, request.overrides)])
    layout = plan_ranks(
        with_previous_layout(request.ranks, package, request.overrides),
        ready.settings,
        device=request.device or previous_device(package),
        terminal=request.terminal,
        where=ready.where,
    )
    session_cards = require_startable(layout.request, ready.settings)
    archive_requirements.require_archives(
        ready.settings, project=ready.project, package=package.path, where=ready.where
    )
    notes = [*ready.prepare_package(), *layout.notes]
    started = start_session(
        package,
        lock_fd,
        ready.request_body(layout.request),
        ready.settings,
        session_cards=session_cards,
        steal=request.steal,
    )
    started.notes = [*notes, *started.notes]
    return started


@dataclass(frozen=True)
class NextSession:
    """A checked further session of a package; nothing was made for it yet."""

    package: PackageFolder
    request: ContinueRequest
    settings: RunSettings
    """The settings that will be effective."""
    project: Path
    where: Where
    checkpoint: int | None
    """The id of the checkpoint to continue from; None: the newest good one."""
    _gate: resume_gate.ResumeGate

    def request_body(self, layout: Mapping[str, Any]) -> SessionRequest:
        """Returns the request of the session.

        Args:
            layout: The part of the request about devices and ranks.
        """
        return SessionRequest(
            kind=TaskKind.TRAIN,
            command=list(self.request.command),
            overrides=list(self.request.overrides),
            checkpoint=self.checkpoint,
            project=str(self.project),
            **layout,
            description=self.request.description,
            force=self._gate.needs_force,
            trust=self.request.trust,
            inexact=self._gate.reasons(),
            changed=self._gate.changed_files,
            initialize=self.request.initialize,
            terminal=self.request.terminal,
        )

    def prepare_package(self) -> list[str]:
        """Prepares the package for the session (its links and its description); returns notes for the
        user."""
        notes = [
            *_branch_notes(self.package, self.checkpoint),
            *_dropped_override_notes(self.package),
            *_change_notes(self._gate),
            *_code_notes(self.package, self.project),
            *_renew_links(self.package, self.project),
        ]
        if self.request.description:
            self.package.describe(self.request.description)
        return notes


def next_session(package: PackageFolder, request: ContinueRequest) -> NextSession | None:
    """Returns another session, checked except for its devices and ranks; None if the run is finished and
    nothing is left to train. The caller holds the lock of the package.

    Raises:
        CheckpointError: The named checkpoint is damaged, or all checkpoints are gone.
        Refused: A change needs ``force``, or a newer roost has written the package.
        ConfigError: An override is wrong.
        NotFound: There is no such project.
    """
    package_schema.require_changeable(package.path)
    require_runner(package)
    package_schema.require_folders(package)
    package_schema.require_session_files(package)
    if not checkpoint.ids(package.checkpoints):
        pruning.require_training_state(package, None)
        package.store().refuse_restart_from_zero(package.kept_ids())
    found = resume_gate.check(package, request.overrides)
    id = selection.checkpoint_id(package, request.checkpoint)
    pruning.require_training_state(package, id)
    require_loop_position(package, id)
    if id is not None:
        checkpoint.verify(package.store().path(id))  # otherwise the session would fail on it
    before = package.settings
    values = with_overrides(package, before, request.overrides)
    if PackageKind.of(package.request) is PackageKind.TRAIN:
        foreign_keys.refuse_added(before, values)
    if found.refused:
        found.require(force=request.force)
    if _is_nothing_left(package, id, found, values):
        return None
    found.require(force=request.force)
    if PackageKind.of(package.request) is PackageKind.TRAIN:
        lineage.require_loadable(found.refused)
    project = preconditions.project_folder(package, request.project)
    where = setting_locations(package, overrides=request.overrides)
    settings = parse_package_settings(package, values, project=project, folder=str(package.path), where=where)
    code_of(settings, package, where)
    copied = [*package.manifest["files"], *package.manifest["links"]]
    check_mirror_paths(settings, copied=copied, where=where)
    return NextSession(package, request, settings, project, where, id, found)


def require_loop_position(package: PackageFolder, id: int | None) -> None:
    """Checks that the checkpoint to train on from is not one that a program has saved by `SavePackage`.

    Args:
        package: The package.
        id: The checkpoint; None: the newest one.

    Raises:
        Refused: It is such a checkpoint of a project of DLNest's contract.
    """
    if PackageKind.of(package.request) is not PackageKind.DLNEST:
        return
    store = package.store()
    start = run_limits.newest_checkpoint(package) if id is None else checkpoint.read_manifest(store.path(id))
    by_program = {one.number for one in package.sessions() if one.is_python}
    if start is None or start.session not in by_program:
        return
    path = shlex.quote(str(package.path))
    raise Refused(
        f"checkpoint {start.id} was saved by a program of its own, through SavePackage: it does not say "
        "where a training of the Runner would go on",
        where=package.path,
        fix="run that program again, which reads it by getStateDict(); to train the Runner from its weights, "
        f"`roost export {path} --weights FILE` and load FILE in init()",
    )


def _is_nothing_left(
    package: PackageFolder, checkpoint: int | None, found: resume_gate.ResumeGate, values: Mapping[str, Any]
) -> bool:
    """Whether the run is finished, and another session would train no step and repeat its end as it was. A
    project of DLNest's contract trains at least one more epoch: its own code decides after it."""
    if PackageKind.of(package.request) is PackageKind.DLNEST:
        return False
    end = run_limits.newest_checkpoint(package)
    if package.state != "succeeded" or (end is not None and checkpoint not in (None, end.id)):
        return False
    changed = [*found.safe, *found.refused]
    if not changed:
        return True
    is_end_changed = any(one.key.partition(".")[0] in _SETTINGS_OF_THE_END for one in changed)
    return end is not None and bool(run_limits.reached(package, end, values)) and not is_end_changed


def nothing_to_train(
    package: PackageFolder, overrides: Sequence[str] = (), *, command: str = "roost continue"
) -> tuple[str, str]:
    """Returns that a run is finished, and the command that would prolong it."""
    values = with_overrides(package, package.settings, overrides)
    given = f" with {shlex.join(overrides)}" if overrides else ""
    more = run_limits.raised(package, run_limits.newest_checkpoint(package), values)
    what = f"the run is finished, there is nothing to do{given}: no session is started"
    return what, f"to train more, {command} {shlex.quote(str(package.path))} {more}"


def finished_note(package: PackageFolder, overrides: Sequence[str] = ()) -> str:
    """Returns `nothing_to_train` in one line; of a project of DLNest's contract, that it trains on."""
    if PackageKind.of(package.request) is PackageKind.DLNEST:
        path = shlex.quote(str(package.path))
        return f"the run is finished; `roost continue {path}` trains at least one more epoch"
    return "; ".join(nothing_to_train(package, overrides))


def _branch_notes(package: PackageFolder, id: int | None) -> list[str]:
    """Returns a note if a session starts from a checkpoint before the newest one: what was trained after it
    is no part of the run from then on."""
    newest = run_limits.newest_checkpoint(package)
    if id is None or newest is None:
        return []
    start = checkpoint.read_manifest(package.store().path(id))
    if start.step >= newest.step:
        return []
    return [
        f"steps {start.step + 1} to {newest.step} are left behind: the run goes on from checkpoint {id} of "
        f"step {start.step}; `roost fork {shlex.quote(str(package.path))} -c {id}` trains from there in a "
        "new package instead, and leaves this one as it is"
    ]


def _dropped_override_notes(package: PackageFolder) -> list[str]:
    """Returns a note if the session before had overrides that hold no longer, as it failed before its first
    step."""
    last = next(reversed(package.sessions()), None)
    if last is None or not last.request.overrides or last in sessions.in_effect(package.path):
        return []
    given = shlex.join(last.request.overrides)
    return [
        f"session {last.number} failed before its first step, so its overrides hold no longer: {given}; give "
        "them again if they were right"
    ]


def _change_notes(found: resume_gate.ResumeGate) -> list[str]:
    """Returns the settings and files that differ from those of the run so far."""
    forced = [f"changed: {resume_gate.format_difference(one)} (inexact)" for one in found.refused]
    files = [f"changed: {name}, in the package (inexact)" for name in found.changed_files]
    return [*(f"changed: {resume_gate.format_difference(one)}" for one in found.safe), *forced, *files]


def _code_notes(package: PackageFolder, project: Path) -> list[str]:
    """Returns a note if the code of the project differs from that of the package: a user who has edited the
    project must know that the package's code runs."""
    names = [name for name in package.manifest["files"] if name.endswith(".py")]
    names = [name for name in names if _files_differ(project / name, package.path / name)]
    if not names:
        return []
    verbs = ("differs", "runs") if len(names) == 1 else ("differ", "run")
    return [f"the project's {join_names(names, _MAX_NAMES)} {verbs[0]}; the package's own code {verbs[1]}"]


def _files_differ(one: Path, other: Path) -> bool:
    """Whether both files exist and differ. The project may be unreadable by now."""
    try:
        return not filecmp.cmp(one, other, shallow=False)
    except OSError:
        return False


def _renew_links(package: PackageFolder, project: Path) -> list[str]:
    """Points the links of a package to the current folder of the project; returns a note for each link that
    is still broken."""
    return [
        f"{name} was not copied, and its link is broken; if the run needs it, add --project DIR"
        for name in snapshot.renew_links(package.path, package.manifest, project)
    ]
