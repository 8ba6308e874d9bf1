"""The operation ``run``: a new package and its first session."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import Any

from roost.base import durable
from roost.base.errors import ConfigError, NotFound, Refused, UsageError
from roost.config import layers
from roost.config.values import nested_values
from roost.operations.evaluating.evaluation_request import EvaluateRequest, follow_training, read_variants
from roost.operations.lifecycle.continue_ import ContinueRequest, continue_, finished_note
from roost.operations.reading import package_schema
from roost.operations.sessions import archive_requirements
from roost.operations.sessions.rank_layout import RankLayout, RankRequest, plan_ranks
from roost.operations.sessions.session_request import (
    StartedSession,
    first_request,
    removed_on_failure,
    require_startable,
    start_first_session,
)
from roost.package import package_name, snapshot
from roost.package.checkpoints import checkpoint
from roost.package.package import PackageFolder
from roost.package.package_draft import TrainingDraft, prepare_training
from roost.package.resume import resume_gate
from roost.package.session_schema import SessionRequest
from roost.package.snapshot import Selection

CODE = frozenset([".py", ".pyi", ".pyx", ".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".so"])
CODE_AND_SETTINGS = CODE | {".json", ".yaml", ".yml", ".toml", ".ini", ".sh"}
"""Changed files of these kinds make another run; notes and pictures do not."""

_MAX_DIFFERENCES = 10


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """A request to run a config."""

    config: Path
    project: Path | None = None
    """The folder of the code; None: that of the config (`roost.config.project_folder`)."""
    tuning: Path | None = None
    overrides: Sequence[str] = ()
    description: str | None = None
    name: str | None = None
    """The package's name; an existing unfinished package of this name continues."""
    step: int | None = None
    """Continue the existing package ``name`` from the checkpoint of this step."""
    no_save: bool = False
    """Name the package NOSAVE; wins over ``use_description``."""
    use_description: bool = False
    """Name the package by its description."""
    device: str | None = None
    """auto, cpu, cuda, mps or xpu; None: auto, or as in the session before if ``name`` continues."""
    steal: bool = False
    """Take the existing package ``name`` over from a living session of another machine, which stops."""
    initialize: bool = False
    """Save step 0, describe the model, and end: `continue` trains."""
    ranks: RankRequest = field(default_factory=RankRequest)
    """How many processes, on which devices."""
    terminal: str = ""
    """A terminal for the run itself, for pdb; empty: none."""
    evaluate: EvaluateRequest | None = None
    """The evaluation that follows the training; its package is the new one."""
    command: Sequence[str] = ()


def run(request: RunRequest) -> StartedSession:
    """Copies the project into a new package and starts it.

    Raises:
        NotFound: There is no such config, or no archive of ``data.stage``.
        ConfigError: The config, or a file it names, is wrong; nothing was made.
        Refused: The package ``name`` exists, and is running or is of another config or code; or this machine
            lacks the devices.
        UsageError: A name or a description makes no folder name; or options contradict each other.
        RoostError: Its session did not start; the package is removed.
        OSError: The package cannot be written; what was made is removed.
    """
    if request.evaluate is not None:
        read_variants(request.evaluate.variants)  # before anything is made
    config = layers.load(request.config, tuning=request.tuning, overrides=request.overrides)
    plan = prepare_training(config, project=request.project, description=request.description)
    if request.initialize:
        _require_saves(request, plan)
    if request.step is not None and not os.path.lexists(plan.root / (request.name or "")):
        raise NotFound(
            f"there is no package of this name to continue from step {request.step}",
            setting="--name",
            received=request.name,
            where=plan.root,
            fix="leave out --iter to begin it",
        )
    name = package_name.requested_name(
        request.name, plan.description, no_save=request.no_save, use_description=request.use_description
    )
    if request.name is None:
        return begin_new(request, plan, name)
    plan.require_writable()
    with locked_root(plan.root):
        package = plan.root / request.name
        if os.path.lexists(package):
            return _continue_existing(request, plan, package)
        return begin_new(request, plan, name)


def _require_saves(request: RunRequest, plan: TrainingDraft) -> None:
    if request.step is not None:
        raise UsageError("--initialize begins a run, and --iter continues one", fix="leave out one of them")
    if not plan.settings.trains:
        raise ConfigError(
            "only measures and saves nothing, so there would be nothing to continue",
            setting="step_mode",
            received=plan.config.values.get("step_mode"),
            where=plan.config.where("step_mode"),
            fix="leave out --initialize, or set step_mode: eager",
        )


@contextmanager
def locked_root(root: Path) -> Iterator[None]:
    """Locks the folder of the packages, so that no other process makes a package of the same name in it at
    the same time."""
    for folder in reversed([root, *root.parents]):
        if not folder.is_dir():
            durable.make_folder(folder, exist_ok=True)
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def begin_new(
    request: RunRequest, plan: TrainingDraft, name: str | None, *, like: PackageFolder | None = None
) -> StartedSession:
    """Creates the package of a checked training, and starts it.

    Args:
        request: The request; its config and overrides are in the draft.
        plan: The draft.
        name: The package's name; None: the time.
        like: See `TrainingDraft.create`.

    Raises:
        As `run`.
    """
    layout = plan_ranks(
        request.ranks,
        plan.settings,
        device=request.device or "auto",
        terminal=request.terminal,
        where=plan.config.where,
    )
    session_cards = require_startable(layout.request, plan.settings)
    archive_requirements.require_archives(plan.settings, project=plan.project, where=plan.config.where)
    notes = [*plan.notes(is_check=False), *layout.notes]  # before the package is among those they look at
    package = plan.create(name, exactly=request.name is not None, command=request.command, like=like)
    with removed_on_failure(package):
        if request.evaluate is not None:
            follow_training(package, request.evaluate)
        started = start_first_session(
            package, _session_request(request, plan, layout), plan.settings, session_cards=session_cards
        )
    started.notes = [*notes, *started.notes]
    return started


def _session_request(request: RunRequest, plan: TrainingDraft, layout: RankLayout) -> SessionRequest:
    return first_request(
        plan.project,
        layout.request,
        command=request.command,
        description=plan.description,
        initialize=request.initialize,
        terminal=request.terminal,
    )


def _continue_existing(request: RunRequest, plan: TrainingDraft, path: Path) -> StartedSession:
    """Continues the existing package of this name, if the config and the code are the same."""
    try:
        package = package_schema.open_checked(path)
    except NotFound as error:
        fix = "choose another name"
        raise Refused("a file or folder that is no package has this name", where=path, fix=fix) from error
    different = _differences(plan, package)
    if different:
        named = different[:_MAX_DIFFERENCES] + [f"… {len(different)} in all"] * (
            len(different) > _MAX_DIFFERENCES
        )
        raise Refused(
            f"{request.name} exists and is another run ({package.state}): {'; '.join(named)}",
            where=path,
            fix=f"choose another name, or continue it as it was: roost continue {quote(str(path))}",
        )
    if package.state == "succeeded" and request.step is None:
        return StartedSession(package.path, notes=[finished_note(package)])
    if request.initialize and checkpoint.ids(package.checkpoints):
        note = f"it was begun already; to train: roost continue {quote(str(path))}"
        return StartedSession(package.path, notes=[note])
    return continue_(
        ContinueRequest(
            package=path,
            step=request.step,
            steal=request.steal,
            initialize=request.initialize,
            description=request.description
            if request.description != package.request.get("description")
            else None,
            device=request.device,
            ranks=request.ranks,
            project=plan.project,
            terminal=request.terminal,
            command=request.command,
        )
    )


def _differences(plan: TrainingDraft, package: PackageFolder) -> list[str]:
    """Returns how the project differs from the package, which was made at another time: settings, then
    files."""
    before = package.args
    different = [
        resume_gate.format_difference(one) for one in nested_values.differences(before, plan.config.values)
    ]
    configs = {file.resolve() for file in plan.config.files}
    changed = changed_code(plan.selection, package.manifest)
    return [
        *different,
        *(f"{name} {word}" for name, word in changed if (plan.project / name).resolve() not in configs),
    ]


def changed_code(selection: Selection, manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Returns the files of code and settings that differ from those of a package, which was made at another
    time: the name of each, and whether it ``has changed`` or ``is new``.

    Args:
        selection: The files that would be copied now.
        manifest: The manifest of the package.
    """
    entries = manifest["files"]
    changed = [
        name for name, one in entries.items() if not snapshot.is_unchanged(selection.source(name), one)
    ]
    added = sorted(set(selection.files) - entries.keys())
    return [
        (name, word)
        for word, found, kinds in (("has changed", changed, CODE_AND_SETTINGS), ("is new", added, CODE))
        for name in found
        if Path(name).suffix in kinds
    ]
