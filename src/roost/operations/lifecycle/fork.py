"""The operation ``fork``: a new package that continues from a checkpoint of another one."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from shlex import quote
from typing import Any

import msgspec

from roost.base import durable
from roost.base.errors import Damaged, NotFound, Refused
from roost.base.text.typed_path import typed_path
from roost.base.text.word_list import join_names
from roost.config.other_tools import foreign_keys
from roost.config.run_settings import RunSettings
from roost.config.values import nested_values
from roost.config.values.nested_values import ABSENT, ConfigDifference
from roost.operations.lifecycle import run_limits
from roost.operations.lifecycle.continue_ import require_loop_position
from roost.operations.lifecycle.run import locked_root
from roost.operations.reading import package_schema
from roost.operations.sessions import archive_requirements
from roost.operations.sessions.rank_layout import (
    RankLayout,
    RankRequest,
    plan_ranks,
    previous_device,
    with_previous_layout,
)
from roost.operations.sessions.session_request import (
    StartedSession,
    first_request,
    removed_on_failure,
    require_startable,
    start_first_session,
)
from roost.package import lineage, package_name, records
from roost.package.checkpoints import checkpoint, checkpoint_store, pruning, retention, selection
from roost.package.checkpoints.checkpoint import Manifest
from roost.package.dlnest.named_paths import PLACES
from roost.package.kinds import PackageKind
from roost.package.package import PackageFolder, with_overrides
from roost.package.project_preflight import (
    check_mirror_paths,
    code_of,
    parse_package_settings,
    require_runner,
)
from roost.package.results import skipped_steps
from roost.package.resume import environment, resume_gate
from roost.package.session_schema import SessionRequest
from roost.package.setting_locations import provenance_locations
from roost.package.snapshot import Selection

_GOAL_SETTINGS = ("max_epochs", "max_steps", "max_time", "early_stopping")
_MAX_NAMES = 3


@dataclass(frozen=True, kw_only=True)
class ForkRequest:
    """A request to fork a package."""

    package: Path
    step: int | None = None
    """Fork from the checkpoint of this step; with neither this nor ``checkpoint``, from the newest good
    one."""
    checkpoint: str | int | None = None
    """``last``, ``best`` or an id."""
    overrides: Sequence[str] = ()
    name: str | None = None
    """The new package's name; None: the time."""
    description: str | None = None
    save_root: Path | None = None
    """The folder of the new package; None: ``save_root`` if an override sets it, else that of the package."""
    device: str | None = None
    """auto, cpu, cuda, mps or xpu; None: as in the newest session of the package."""
    ranks: RankRequest = field(default_factory=RankRequest)
    """How many processes, on which devices."""
    trust: bool = False
    """Read pickles of its checkpoint that are not signed with the key of this user."""
    terminal: str = ""
    """A terminal for the run itself, for pdb; empty: none."""
    command: Sequence[str] = ()


@dataclass(frozen=True)
class _ForkPlan:
    """A checked fork, except for its checkpoint."""

    source: PackageFolder
    values: dict[str, Any]
    differences: list[ConfigDifference]
    provenance: dict[str, str]
    settings: RunSettings
    selection: Selection
    inexact: list[str]
    layout: RankLayout
    project: Path
    root: Path


def fork(request: ForkRequest) -> StartedSession:
    """Copies the code, a checkpoint and the records up to it into a new package, and starts that.

    The source package does not change, and may be running.

    Raises:
        NotFound: There is no such package or checkpoint.
        Damaged: The named checkpoint has other bytes than were written.
        DamagedPackage: A file of the package is not as roost writes it.
        Refused: The package was made from Python, or the name is in use; or the checkpoint is at its goal
            and no limit is raised enough, so that the fork would train nothing; or this machine lacks the
            devices.
        ConfigError: An override is wrong, or the checkpoint cannot be loaded with it.
        UsageError: The name or the description makes no folder name, or options contradict each other.
        RoostError: Its session did not start; the package is removed.
        OSError: The new package cannot be written; what was made is removed.
    """
    if request.name is not None:
        package_name.checked_name(request.name)
    if request.description:
        package_name.folder_name(request.description)
    source = package_schema.open_checked(request.package, to_continue=True)
    require_runner(source)
    package_schema.require_folders(source)
    id = selection.checkpoint_id(source, request.checkpoint)
    require_loop_position(source, id)
    pruning.require_training_state(
        source, source.store().at_step(request.step).id if request.step is not None else id
    )
    request = replace(request, checkpoint=id)
    plan = _plan_fork(source, request)
    if (info := _reached_goal(plan, request)) is not None:
        raise _nothing_to_do(plan, info)
    session_cards = require_startable(plan.layout.request, plan.settings)
    archive_requirements.require_archives(
        plan.settings,
        project=plan.project,
        package=source.path,
        where=provenance_locations(plan.provenance),
    )
    with locked_root(plan.root) if request.name is not None else nullcontext():
        if request.name is not None and os.path.lexists(path := plan.root / request.name):
            fix = f"choose another name, or continue it: roost continue {quote(str(path))}"
            raise Refused("a file or folder of this name exists", where=path, fix=fix)
        made, info, notes = _create_package(plan, request)
    with removed_on_failure(made):
        notes += [*_notes(plan, info), *plan.layout.notes]
        started = start_first_session(
            made, _session_request(plan, request), plan.settings, session_cards=session_cards
        )
    started.notes = [*notes, *started.notes]
    return started


def _plan_fork(source: PackageFolder, request: ForkRequest) -> _ForkPlan:
    before = source.settings
    values = with_overrides(source, before, request.overrides)
    if PackageKind.of(source.request) is PackageKind.TRAIN:
        foreign_keys.refuse_added(before, values)
    differences = nested_values.differences(before, values)
    provenance = effective_provenance(source, differences)
    where = provenance_locations(provenance)
    project = source.project
    settings = parse_package_settings(source, values, project=project, folder="${package}", where=where)
    selection = select_copied(source, code_of(settings, source, where))
    check_mirror_paths(settings, copied=[*selection.files, *selection.links], where=where)
    if PackageKind.of(source.request) is PackageKind.TRAIN:
        lineage.require_loadable(differences)
    changed = resume_gate.changed_files(source)
    return _ForkPlan(
        source=source,
        values=values,
        differences=differences,
        provenance=provenance,
        settings=settings,
        selection=selection,
        inexact=[f"{name} was changed in {source.path.name} after it was copied" for name in changed],
        layout=plan_ranks(
            with_previous_layout(request.ranks, source, request.overrides),
            settings,
            device=request.device or previous_device(source),
            terminal=request.terminal,
            where=where,
        ),
        project=project,
        root=target_root(source, request.save_root, settings, differences, project),
    )


def effective_provenance(source: PackageFolder, differences: Sequence[ConfigDifference]) -> dict[str, str]:
    """Returns which layer set which key: the layers of the package, its sessions, and this command line."""
    found, values = dict(source.provenance), source.args
    for session in source.sessions():
        if session.is_effective(source.path / "records"):
            after = with_overrides(source, values, session.request.overrides)
            label = f"command line of session {session.number} of {source.path.name}"
            _set_layer(found, nested_values.differences(values, after), label)
            values = after
    _set_layer(found, differences, "command line")
    return found


def _set_layer(provenance: dict[str, str], differences: Sequence[ConfigDifference], label: str) -> None:
    for one in differences:
        if one.new is ABSENT:
            provenance.pop(one.key, None)
        else:
            provenance[one.key] = label


def select_copied(source: PackageFolder, named: Sequence[Path]) -> Selection:
    """Returns all files that the package itself copied, and its links as they are now."""
    manifest = source.manifest
    paths = {name: source.path / name for name in manifest["files"]}
    gone = [name for name, path in paths.items() if not (path.is_file() or path.is_symlink())]
    if gone:
        raise NotFound(
            f"the package lacks {join_names(gone, _MAX_NAMES)}, which it had copied",
            where=source.path,
            fix="restore it",
        )
    links = {
        name: str(path.readlink()) if (path := source.path / name).is_symlink() else to
        for name, to in manifest["links"].items()
    }
    return Selection(
        source.path,
        files=list(manifest["files"]),
        named=[file.relative_to(source.path).as_posix() for file in named],
        links=links,
        left_out=manifest.get("left_out", []),
    )


def target_root(
    source: PackageFolder,
    given: Path | None,
    settings: RunSettings,
    differences: Sequence[ConfigDifference],
    project: Path,
) -> Path:
    """Returns the folder of a package that is made from another one: the given one, that of a changed
    ``save_root``, or that of the other package."""
    if given is None and any(one.key == "save_root" for one in differences):
        given = project / typed_path(settings.save_root)
    return Path(os.path.normpath((given or source.path.parent).absolute()))


def _reached_goal(plan: _ForkPlan, request: ForkRequest) -> Manifest | None:
    """Returns the requested checkpoint if nothing is left to train after it: it has reached a limit, or it is
    the end of a finished run, which early stopping may have ended, and no limit is changed."""
    line = plan.source.store().lineage()
    if PackageKind.of(plan.source.request) is PackageKind.DLNEST:
        return None  # it trains at least one more epoch
    is_named = request.step is not None or request.checkpoint is not None
    newest = line[-1] if line else None
    start = _requested_checkpoint(plan.source, request) if is_named else newest
    if start is None or run_limits.reached(plan.source, start, plan.values):
        return start
    is_end = plan.source.state == "succeeded" and bool(line) and start.id == line[-1].id
    moved = any(f"{one.key}.".startswith(f"{goal}.") for one in plan.differences for goal in _GOAL_SETTINGS)
    return start if is_end and not moved else None


def _requested_checkpoint(source: PackageFolder, request: ForkRequest) -> Manifest | None:
    """Returns the checkpoint that the request names; None if its manifest is damaged.

    Raises:
        NotFound: There is no such checkpoint.
    """
    if request.step is not None:
        return source.store().at_step(request.step)
    assert request.checkpoint is not None
    source.store().path(int(request.checkpoint))
    known = checkpoint.read_manifests(source.checkpoints)
    return next((one for one in known if one.id == request.checkpoint), None)


def _nothing_to_do(plan: _ForkPlan, goal: Manifest) -> Refused:
    source = plan.source
    limits = ", ".join(
        f"{name}: {plan.values[name]}" for name in run_limits.reached(source, goal, plan.values)
    )
    ended = f", where {limits} ends it" if limits else ""
    before = [
        one.step
        for one in source.store().lineage()
        if one.step < goal.step and not run_limits.reached(source, one, plan.values)
    ]
    earlier = f", or fork from an earlier step: --at {before[-1]}" if before else ""
    return Refused(
        f"the run is at its goal, step {goal.step}{ended}: a fork would have nothing to do",
        where=source.path,
        fix=f"raise the limit: {run_limits.raised(source, goal, plan.values)}{earlier}",
    )


# --- the copy -------------------------------------------------------------------------------------------


def _create_package(plan: _ForkPlan, request: ForkRequest) -> tuple[PackageFolder, Manifest, list[str]]:
    """Returns the new package, its checkpoint, and a note for each damaged checkpoint that was skipped."""
    found = plan.source.store()
    if request.step is None and request.checkpoint is None:
        answer, notes = found.newest_readable(lambda path: _copy_checkpoint(plan, request, path))
        if answer is None:
            raise NotFound("the package has no checkpoint to continue from", where=plan.source.path)
        return *answer, notes
    if request.checkpoint is not None:
        path = found.path(int(request.checkpoint))  # `fork` has replaced the words
    else:
        assert request.step is not None
        path = checkpoint.checkpoint_folder(found.folder, found.at_step(request.step).id)
    try:
        return *_copy_checkpoint(plan, request, path), []
    except (Damaged, NotFound, FileNotFoundError) as error:
        steps = checkpoint_store.format_steps(_other_checkpoints(found.folder, path))
        others = f"there are checkpoints of {steps}"
        if path.exists():
            fix = f"name another one; {others}"
            raise Damaged(str(error), where=plan.source.path, fix=fix) from error
        raise NotFound(
            f"{path.name} was removed by its run while it was copied; {others}", where=plan.source.path
        ) from error


def _other_checkpoints(folder: Path, path: Path) -> list[Manifest]:
    return [
        info
        for info in checkpoint.read_manifests(folder)
        if checkpoint.checkpoint_folder(folder, info.id) != path
    ]


def _copy_checkpoint(plan: _ForkPlan, request: ForkRequest, path: Path) -> tuple[PackageFolder, Manifest]:
    info, sha256 = checkpoint.read_manifest(path), checkpoint.manifest_digest(path)
    parent = lineage.ForkParent(
        package=plan.source.path.name,
        path=str(plan.source.path),
        checkpoint=info.id,
        step=info.step,
        sha256=sha256,
        changed=lineage.setting_changes(plan.differences),
    )
    source_request = plan.source.request
    made = PackageFolder.create(
        plan.root,
        name=request.name,
        values=plan.values,
        provenance=plan.provenance,
        request={
            **{key: source_request[key] for key in ("kind", PLACES) if key in source_request},
            "command": list(request.command),
            "description": request.description,
            "git": plan.source.request.get("git"),
            "project": str(plan.project),
            "created": round(time.time(), 3),
            "parent": msgspec.to_builtins(parent),
            "ancestors": msgspec.to_builtins(lineage.ancestry(plan.source)),
        },
        selection=plan.selection,
        fill=lambda folder: _fill_package(plan.source, info, path, folder),
    )
    with removed_on_failure(made):
        is_dlnest = PackageKind.of(made.request) is PackageKind.DLNEST
        policy = retention.policy_from_settings(plan.settings.checkpoint, only_scheduled=is_dlnest)
        tracks = retention.track_ids(checkpoint.read_manifests(made.checkpoints), policy)
        made.write_derived(tracks, info.inexact)
        if request.description:
            made.describe(request.description)
    return made, info


def _fill_package(source: PackageFolder, info: Manifest, path: Path, folder: Path) -> None:
    """Writes the checkpoint, the records up to it, and the environment in which it was computed."""
    checkpoint.copy(path, folder / "Checkpoints", session=lineage.INHERITED_SESSION)
    rows, steps = lineage.history_before(source, info)
    file = folder / "records" / f"{lineage.INHERITED_SESSION}.jsonl"
    durable.write(file, records.encode_records(rows, session=lineage.INHERITED_SESSION))
    if steps:
        durable.write(folder / skipped_steps.NAME, skipped_steps.encode_steps(steps))
    if (source.path / environment.NAME).is_file():
        durable.write(folder / environment.NAME, (source.path / environment.NAME).read_bytes())


def _session_request(plan: _ForkPlan, request: ForkRequest) -> SessionRequest:
    found = first_request(
        plan.project,
        plan.layout.request,
        command=request.command,
        description=request.description,
        terminal=request.terminal,
    )
    found.inexact, found.trust = plan.inexact, request.trust
    return found


_INSIDE_EPOCH = (
    "it begins inside an epoch, after {} batches: with other data settings than before, samples of this "
    "epoch may occur twice or not at all"
)


def _notes(plan: _ForkPlan, info: Manifest) -> list[str]:
    notes = [f"forked from {plan.source.path} at step {info.step} (checkpoint {info.id})"]
    notes += [f"changed: {resume_gate.format_difference(one)}" for one in plan.differences]
    of_data = (one.key for one in plan.differences if one.key.startswith("data."))
    if info.batch and not all(map(resume_gate.is_safe, of_data)):
        notes.append(_INSIDE_EPOCH.format(info.batch))
    line = retention.lineage(checkpoint.read_manifests(plan.source.checkpoints), tip=info.id)
    for rule in retention.policy_from_settings(plan.settings.checkpoint).best:
        best = next(iter(retention.best_checkpoints(line, rule)), None)
        if best is not None and best.id != info.id:
            value = f"{rule.monitor} {best.metrics[rule.monitor]:.4g} at step {best.step}"
            notes.append(f"its best so far ({value}) is not copied, so it is not kept as the best here")
    return notes
