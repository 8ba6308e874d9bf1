"""``analyze``: runs a script on what a package trained."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roost.analysis import analysis_folder, preconditions, script
from roost.analysis.script import Script
from roost.base import durable
from roost.config.settings import Settings
from roost.operations.reading import package_schema
from roost.operations.sessions import package_worker
from roost.operations.sessions.foreground_lease import SessionCards, choose_one_card
from roost.operations.sessions.running_session import RunningSession
from roost.operations.sessions.session_request import StartedSession
from roost.package import snapshot
from roost.package.package import PackageFolder
from roost.package.sessions import Session


@dataclass(frozen=True, kw_only=True)
class AnalyzeRequest:
    """What is asked."""

    package: Path
    script: str
    """A file; or the name of one of the project's AnalyzeScripts, or of the package's copy of them."""
    checkpoint: int | None = None
    """Look at this one; None: the newest good one."""
    untrained: bool = False
    """Look at the weights as the Runner builds them."""
    device: str = "auto"
    """auto, cpu or cuda."""
    project: Path | None = None
    """Where the project is now; None: where it was."""
    out: Path | None = None
    """Store everything in a new folder below this one; None: in the package."""
    command: Sequence[str] = ()


def analyze(request: AnalyzeRequest) -> StartedSession:
    """Starts an analysis. It takes no lock: the package's training may be running. It ends when the process
    that called this is gone.

    Raises:
        NotFound: There is no such package, script, checkpoint or project.
        ContractError: The script has no `experience` that can be called.
        DamagedPackage: A file of the package is not as roost writes it.
        CheckpointError: There are checkpoints, and none was written by roost.
        UsageError: ``untrained`` with a checkpoint.
        Refused: The package is a file, or has no Runner, or the analysis cannot be stored there.
        ConfigError: The package's settings do not fit this version.
        Busy: Others hold all GPUs.
        RoostError: The supervisor did not start.
    """
    package = preconditions.open_with_runner(
        request.package, by=functools.partial(package_schema.open_checked, to_go_on=True)
    )
    project = preconditions.project_folder(package, request.project)
    found = script.read(script.find(request.script, [project / script.FOLDER, package.path / script.FOLDER]))
    notes = [f"script: {found.path}"]
    notes += preconditions.check_checkpoints(package, request.checkpoint, untrained=request.untrained)
    settings = package_schema.checked_settings(package, project)
    notes += _broken_link_notes(package, project, renew=request.project is not None)
    session_cards = choose_one_card(request.device)
    place = analysis_folder.create(analysis_folder.analyses_root(package, request.out))
    started = _start(package, place, request, found, project, settings, session_cards)
    started.notes = [*notes, *session_cards.notes]
    return started


def _broken_link_notes(package: PackageFolder, project: Path, *, renew: bool) -> list[str]:
    """A line for each link to data that leads nowhere. Where the project's new place was given they are first
    pointed to it, which changes nothing that the package needs where it came from."""
    broken = [name for name in package.manifest["links"] if not (package.path / name).exists()]
    if broken and renew:
        try:
            broken = snapshot.renew_links(package.path, package.manifest, project)
        except OSError as error:
            return [f"the links to what was not copied cannot be renewed: {error}"]
    return [
        f"{name} was not copied, and its link leads nowhere; if the analysis needs it: --project DIR"
        for name in broken
    ]


def _start(
    package: PackageFolder,
    place: Path,
    request: AnalyzeRequest,
    found: Script,
    project: Path,
    settings: Settings,
    session_cards: SessionCards,
) -> StartedSession:
    durable.write(place / analysis_folder.SCRIPT, found.source)
    asked = {
        "kind": "analysis",
        "package": str(package.path),
        "script": {"path": str(found.path), "sha256": hashlib.sha256(found.source).hexdigest()},
        "checkpoint": request.checkpoint,
        "untrained": request.untrained,
        "device": request.device,
        "project": str(project),
        "command": list(request.command),
    }
    running, process = package_worker.start_package_worker(
        package, place, asked, settings, number=int(place.name), session_cards=session_cards
    )
    return StartedSession(package.path, running, process)


def outcome(running: RunningSession, session: Session) -> dict[str, Any]:
    """Everything about an analysis that has ended, as one mapping for programs."""
    place = running.record.parent
    record = session.record or {}
    ending = {
        name: record.get(name) for name in ("exit_code", "reason", "error", "seconds", "peak_memory_mb")
    }
    return {
        "package": str(running.package),
        "folder": str(place),
        "state": session.state,
        **ending,
        "result": package_schema.printable(analysis_folder.read_result(place)) or None,
    }
