"""The operation ``rerun``: a new package that begins the run of another one again."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

from roost.config.layers import Config
from roost.config.run_settings import Contract
from roost.config.values import nested_values
from roost.operations.lifecycle.fork import effective_provenance, select_copied, target_root
from roost.operations.lifecycle.run import RunRequest, begin_new, locked_root
from roost.operations.reading import package_schema
from roost.operations.sessions.rank_layout import RankRequest, previous_device, with_previous_layout
from roost.operations.sessions.session_request import StartedSession
from roost.package import package_name
from roost.package.dlnest.named_paths import PLACES
from roost.package.kinds import PackageKind
from roost.package.package import PackageFolder, with_overrides
from roost.package.package_draft import TrainingDraft, prepare_training
from roost.package.project_preflight import (
    check_mirror_paths,
    code_of,
    parse_package_settings,
    require_runner,
)
from roost.package.resume import resume_gate


@dataclass(frozen=True, kw_only=True)
class RerunRequest:
    """A request to begin the run of a package again."""

    package: Path
    overrides: Sequence[str] = ()
    todays_code: bool = False
    """Whether to copy the project's code as it is now; False: the code of the package."""
    name: str | None = None
    """The new package's name; None: the time."""
    description: str | None = None
    """A few words about the new run; None: those of the package."""
    save_root: Path | None = None
    """The folder of the new package; None: ``save_root`` if an override sets it, else that of the package."""
    device: str | None = None
    """auto, cpu, cuda, mps or xpu; None: as in the newest session of the package."""
    ranks: RankRequest = field(default_factory=RankRequest)
    """How many processes, on which devices."""
    terminal: str = ""
    """A terminal for the run itself, for pdb; empty: none."""
    command: Sequence[str] = ()


def rerun(request: RerunRequest) -> StartedSession:
    """Makes a new package with the settings of another one and starts it from step 0. The other package does
    not change, and may be running.

    Settings that sessions of the package have changed count as they are now. On the same stack, with the same
    code and settings, the run computes the same bits.

    Raises:
        NotFound: There is no such package, it lacks a file that it had copied, or its project does not exist.
        DamagedPackage: A file of the package is not as roost writes it.
        Refused: The package names no Runner, or the name is in use; or a newer roost has written the package,
            or it is in the trash; or this machine lacks the devices.
        ConfigError: An override is wrong, or the settings do not fit today's code.
        UsageError: The name or the description makes no folder name, or options contradict each other.
        RoostError: Its session did not start; the new package is removed.
        OSError: The new package cannot be written; what was made is removed.
    """
    if request.name is not None:
        package_name.checked_name(request.name)
    source = package_schema.open_checked(request.package)
    package_schema.require_changeable(source.path)  # else it is misread, or the new one is in the trash, too
    require_runner(source)
    draft, notes = _draft(source, request)
    run_request = RunRequest(
        config=draft.config.path,
        name=request.name,
        device=request.device or previous_device(source),
        ranks=with_previous_layout(request.ranks, source, request.overrides),
        terminal=request.terminal,
        command=request.command,
    )
    like = None if request.todays_code else source
    with locked_root(draft.root) if request.name is not None else nullcontext():
        if request.name is not None and (draft.root / request.name).exists():
            raise package_name.name_taken_error(draft.root, request.name)
        started = begin_new(run_request, draft, request.name, like=like)
    started.notes = [*notes, *started.notes]
    return started


def _draft(source: PackageFolder, request: RerunRequest) -> tuple[TrainingDraft, list[str]]:
    """Returns the checked new package, and notes for the user."""
    before = source.settings
    values = with_overrides(source, before, request.overrides)
    differences = nested_values.differences(before, values)
    is_dlnest = PackageKind.of(source.request) is PackageKind.DLNEST
    project = source.project
    config = Config.of_values(
        project / "config",
        values,
        effective_provenance(source, differences),
        Contract.DLNEST if is_dlnest else Contract.NATIVE,
    )
    description = request.description or source.request.get("description")
    settings = parse_package_settings(
        source, values, project=project, folder="${package}", where=config.where
    )
    root = target_root(source, request.save_root, settings, differences, project)
    code = "today's code" if request.todays_code else "its code"
    notes = [f"rerun of {source.path} with {code}"]
    notes += [f"changed: {resume_gate.format_difference(one)}" for one in differences]
    if request.todays_code:
        draft = prepare_training(config, project=project, root=root, description=description)
        return replace(draft, rerun_of=_origin(source, request)), notes
    selection = select_copied(source, files := code_of(settings, source, config.where))
    check_mirror_paths(settings, copied=[*selection.files, *selection.links], where=config.where)
    notes += [
        f"{name} was changed in {source.path.name} after it was copied"
        for name in resume_gate.changed_files(source)
    ]
    draft = TrainingDraft(
        config=config,
        kind=PackageKind.of(source.request),
        project=project,
        root=root,
        selection=selection,
        description=description,
        places=source.request.get(PLACES) or {},
        settings=settings,
        files=files,
        rerun_of=_origin(source, request),
    )
    return draft, notes


def _origin(source: PackageFolder, request: RerunRequest) -> dict[str, str]:
    return {
        "package": source.path.name,
        "path": str(source.path),
        "code": "today" if request.todays_code else "package",
    }
