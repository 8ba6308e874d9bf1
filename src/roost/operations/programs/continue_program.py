"""The operation ``continue`` of the package of a program."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from roost.base.errors import UsageError
from roost.config.run_settings import RunSettings
from roost.config.sections.limits import LimitSettings
from roost.operations.programs.program_package import require_archives, require_time_limit_only
from roost.operations.reading import package_schema
from roost.operations.sessions.program_plan import program_session
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
from roost.package import snapshot
from roost.package.package import PackageFolder
from roost.package.program_request import ProgramRequest
from roost.package.session_schema import SessionRequest

if TYPE_CHECKING:
    from roost.operations.lifecycle.continue_ import ContinueRequest


def continue_program(package: PackageFolder, request: ContinueRequest) -> StartedSession:
    """Starts a program of a package again, from its own newest checkpoint where it can take one.

    Args:
        package: The package of a program.
        request: The request; of its overrides only the time limit applies.

    Raises:
        UsageError: The request has what applies to trainings only.
        Refused: The package is in use, or this machine lacks the devices.
        OSError: The request of the session cannot be written.
    """
    time_limit = require_time_limit_only(request)
    ranks = with_previous_layout(request.ranks, package, ())
    require_one_process(ranks)
    settings = program_settings(time_limit)
    lock_fd = lock_package(package, steal=request.steal)
    try:
        package_schema.require_folders(package)
        package_schema.require_session_files(package)
        program = ProgramRequest.of(package.request)
        layout = one_process_layout(ranks, settings, request.device or previous_device(package))
        session_cards = require_startable(layout, settings)
        require_archives(program, package.path)
        project = request.project if request.project is not None else Path(program.project)
        notes = [
            f"{name} was not copied, and its link is broken; if the program needs it, add --project DIR"
            for name in snapshot.renew_links(
                package.path, package.manifest, project, copied_into=program.copied_into
            )
        ]
        if request.description:
            package.describe(request.description)
        body = program_session(program, layout, request.description)
        started = start_session(
            package, lock_fd, body, settings, session_cards=session_cards, steal=request.steal
        )
    finally:
        os.close(lock_fd)
    started.notes = [*notes, *started.notes]
    return started


def require_one_process(ranks: RankRequest) -> None:
    """Checks that a request is one for a program.

    Raises:
        UsageError: It has a strategy, or several machines.
    """
    if ranks.strategy not in (None, "single") or ranks.num_nodes > 1:
        fix = (
            "leave it out, and start the processes by the command: `-- torchrun --nproc-per-node 2 train.py`"
        )
        raise UsageError("roost starts a program as one process", fix=fix)


def program_settings(time_limit: str | None) -> RunSettings:
    """Returns the settings of a program: the defaults, with a time limit."""
    return RunSettings(limits=LimitSettings(wall_time=time_limit))


def one_process_layout(ranks: RankRequest, settings: RunSettings, device: str) -> SessionRequest:
    """Returns the part of a session's request about its devices: one card, unless more are requested."""
    one = replace(ranks, strategy="single", devices=1 if ranks.devices is None else ranks.devices)
    return plan_ranks(one, settings, device=device, terminal="", where=lambda _: None).request
