"""The operation ``run -- COMMAND``: a program of the user as a run."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from shlex import join, quote

from roost.base import durable
from roost.base.errors import NotFound, Refused
from roost.operations.lifecycle.continue_ import ContinueRequest
from roost.operations.lifecycle.run import changed_code, locked_root
from roost.operations.programs.continue_program import (
    continue_program,
    one_process_layout,
    program_settings,
    require_one_process,
)
from roost.operations.programs.program_package import (
    ProgramDraft,
    TypedProgram,
    prepare_program,
    require_archives,
)
from roost.operations.reading import package_schema
from roost.operations.sessions.program_plan import program_session
from roost.operations.sessions.rank_layout import RankRequest
from roost.operations.sessions.session_request import (
    StartedSession,
    removed_on_failure,
    require_startable,
    start_first_session,
)
from roost.package import package_name
from roost.package.kinds import PackageKind
from roost.package.package import PackageFolder
from roost.package.program_request import ProgramRequest

_MAX_DIFFERENCES = 10


@dataclass(frozen=True, kw_only=True)
class RunProgramRequest:
    """A request to run a program now, at this terminal."""

    program: TypedProgram
    device: str | None = None
    """auto, cpu, cuda, mps or xpu; None: auto, or as in the session before if its name continues."""
    ranks: RankRequest = field(default_factory=RankRequest)
    """The cards of the program, its share of the host, and automatic restarts. It is one process, and starts
    its own children."""
    steal: bool = False
    """Take the existing package of its name over from a living session of another machine, which stops."""
    time_limit: str | None = None
    """The time within which it must end, as in ``limits.wall_time``."""


def run_program(request: RunProgramRequest) -> StartedSession:
    """Copies the code of a program into a new package and starts it there; the same call with the name of an
    unfinished package continues it.

    Raises:
        NotFound, UsageError, Refused: As `roost.operations.programs.program_package.prepare_program`; or the
            package of this name is of another program, or is running; or this machine lacks the devices.
        RoostError: Its session did not start; the package is removed.
        OSError: The package cannot be written; what was made is removed.
    """
    require_one_process(request.ranks)
    name = request.program.name
    if name is not None:
        package_name.checked_name(name, setting="--name")
    with prepare_program(request.program) as draft:
        _require_writable(draft.root)
        with locked_root(draft.root) if name is not None else nullcontext():
            if name is not None and os.path.lexists(draft.root / name):
                return _continue_existing(request, draft, draft.root / name)
            return _begin(request, draft)


def _begin(request: RunProgramRequest, draft: ProgramDraft) -> StartedSession:
    settings = program_settings(request.time_limit)
    layout = one_process_layout(request.ranks, settings, request.device or "auto")
    session_cards = require_startable(layout, settings)
    require_archives(draft.request)
    package = draft.create()
    with removed_on_failure(package):
        body = program_session(draft.request, layout, request.program.description)
        started = start_first_session(package, body, settings, session_cards=session_cards)
    started.notes = [*draft.source.notes, *started.notes]
    return started


def _require_writable(root: Path) -> None:
    folder = next((one for one in (root, *root.parents) if one.exists()), root)
    if folder.is_dir() and not os.access(folder, os.W_OK | os.X_OK):
        fix = "name a folder of yours: `roost run save_root=~/runs -- COMMAND`"
        raise Refused("packages cannot be made here: the folder cannot be written", where=folder, fix=fix)
    durable.make_folders(root)


def _continue_existing(request: RunProgramRequest, draft: ProgramDraft, path: Path) -> StartedSession:
    """Continues the package of this name, if it is of the same program and code."""
    fix = "choose another name"
    try:
        package = package_schema.open_checked(path)
    except NotFound as error:
        raise Refused("a file or folder that is no package has this name", where=path, fix=fix) from error
    if PackageKind.of(package.request) is not PackageKind.COMMAND:
        raise Refused("the package of this name is not of a program", where=path, fix=fix)
    different = _differences(draft, package)
    if different:
        more = [f"… {len(different)} in all"] if len(different) > _MAX_DIFFERENCES else []
        raise Refused(
            f"{path.name} exists and is another run ({package.state}): "
            + "; ".join([*different[:_MAX_DIFFERENCES], *more]),
            where=path,
            fix=f"choose another name, or continue it as it was: roost continue {quote(str(path))}",
        )
    if package.state == "succeeded":
        note = f"the program has ended with success; to start it again: roost continue {quote(str(path))}"
        return StartedSession(package.path, notes=[note])
    limit = () if request.time_limit is None else (f"roost.limits.wall_time={request.time_limit}",)
    return continue_program(
        package,
        ContinueRequest(
            package=path,
            overrides=limit,
            device=request.device,
            ranks=request.ranks,
            steal=request.steal,
            command=sys.argv,
        ),
    )


def _differences(draft: ProgramDraft, package: PackageFolder) -> Sequence[str]:
    """Returns how a program differs from that of a package, which was made at another time."""
    before, now = ProgramRequest.of(package.request), draft.request
    found = [
        f"{what} was {_as_typed(old)}, is {_as_typed(new)}"
        for what, old, new in (
            ("the command", before.command, now.command),
            ("its folder", before.cwd or before.project, now.cwd or now.project),
            ("--resume-with", before.resume_with, now.resume_with),
            ("--metric", _metric_options(before), _metric_options(now)),
            ("--checkpoint", before.checkpoint_pattern, now.checkpoint_pattern),
            ("--stage", before.stage, now.stage),
        )
        if old != new
    ]
    selection = draft.source.selection
    if selection is None:
        return found
    changed = changed_code(selection, package.manifest)
    return [*found, *(f"{name} {word}" for name, word in changed)]


def _metric_options(program: ProgramRequest) -> list[str]:
    return [f"{name}={pattern}" for name, pattern in program.metrics.items()]


def _as_typed(value: str | Sequence[str] | None) -> str:
    words = [value] if isinstance(value, str) else value
    return f"`{join(words)}`" if words else "not given"
