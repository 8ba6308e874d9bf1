"""``analyze``: runs a script on the trained model of a package."""

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
from roost.config.run_settings import RunSettings
from roost.operations.reading import package_schema
from roost.operations.sessions import package_worker
from roost.operations.sessions.foreground_lease import SessionCards, choose_one_card
from roost.operations.sessions.running_session import RunningSession
from roost.operations.sessions.session_request import StartedSession
from roost.package import snapshot
from roost.package.checkpoints import selection
from roost.package.kinds import TaskKind
from roost.package.package import PackageFolder
from roost.package.sessions import Session


@dataclass(frozen=True, kw_only=True)
class AnalyzeRequest:
    """A request to analyze a package."""

    package: Path
    script: str
    """A file; or the name of a script in ``AnalyzeScripts`` of the project, or of its copy in the package."""
    checkpoint: str | int | None = None
    """``last``, ``best`` or an id; None: ``last``, the newest good one."""
    untrained: bool = False
    """Use the weights as the Runner builds them."""
    trust: bool = False
    """Read pickles of the checkpoint that are not signed with the key of this user."""
    device: str = "auto"
    """auto, cpu, cuda, mps or xpu."""
    memory_mb: int | None = None
    """The memory that it takes of its card, in MB; None: the whole card."""
    project: Path | None = None
    """The folder of the project now; None: its recorded folder."""
    out: Path | None = None
    """The parent of a new folder for all results; None: the package."""
    command: Sequence[str] = ()


def analyze(request: AnalyzeRequest) -> StartedSession:
    """Starts an analysis. It takes no lock: the training of the package may be running. The analysis ends
    with the calling process.

    Raises:
        NotFound: There is no such package, script, checkpoint or project.
        ContractError: The script has no callable `experience`.
        DamagedPackage: A file of the package is not as roost writes it.
        CheckpointError: There are checkpoints, but roost has written none of them.
        UsageError: ``untrained`` with a checkpoint.
        Refused: The package is a file, or has no Runner, or the analysis cannot be stored there.
        ConfigError: The package's settings do not fit this version.
        Busy: All GPUs are leased.
        RoostError: The supervisor did not start.
    """
    package = preconditions.open_with_runner(
        request.package, by=functools.partial(package_schema.open_checked, to_continue=True)
    )
    project = preconditions.project_folder(package, request.project)
    found = script.read(script.find(request.script, [project / script.FOLDER, package.path / script.FOLDER]))
    notes = [f"script: {found.path}"]
    checkpoint = selection.checkpoint_id(package, request.checkpoint)
    notes += preconditions.check_checkpoints(package, checkpoint, untrained=request.untrained)
    settings = package_schema.checked_settings(package, project)
    notes += _broken_link_notes(package, project, renew=request.project is not None)
    session_cards = choose_one_card(request.device, request.memory_mb)
    place = analysis_folder.create(analysis_folder.analyses_root(package, request.out))
    started = _start(package, place, request, checkpoint, found, project, settings, session_cards)
    started.notes = [*notes, *session_cards.notes]
    return started


def _broken_link_notes(package: PackageFolder, project: Path, *, renew: bool) -> list[str]:
    """Returns a line for each broken link to data. With ``renew``, broken links are first renewed to point to
    the project, which takes nothing from the package that it needs at its original place."""
    broken = [name for name in package.manifest["links"] if not (package.path / name).exists()]
    if broken and renew:
        try:
            broken = snapshot.renew_links(package.path, package.manifest, project)
        except OSError as error:
            return [f"the links to files that were not copied cannot be renewed: {error}"]
    return [
        f"{name} was not copied, and its link is broken; if the analysis needs it, give --project DIR"
        for name in broken
    ]


def _start(
    package: PackageFolder,
    place: Path,
    request: AnalyzeRequest,
    checkpoint: int | None,
    found: Script,
    project: Path,
    settings: RunSettings,
    session_cards: SessionCards,
) -> StartedSession:
    durable.write(place / analysis_folder.SCRIPT, found.source)
    body = {
        "kind": TaskKind.ANALYZE,
        "package": str(package.path),
        "script": {"path": str(found.path), "sha256": hashlib.sha256(found.source).hexdigest()},
        "checkpoint": checkpoint,
        "untrained": request.untrained,
        "trust": request.trust,
        "device": request.device,
        "project": str(project),
        "command": list(request.command),
    }
    running, process = package_worker.start_package_worker(
        package, place, body, settings, number=int(place.name), session_cards=session_cards
    )
    return StartedSession(package.path, running, process)


def outcome(running: RunningSession, session: Session) -> dict[str, Any]:
    """Returns all results of an ended analysis as a JSON object."""
    return outcome_of(running.package, session, running.record.parent)


def outcome_of(package: Path | str, session: Session, folder: Path | str) -> dict[str, Any]:
    """Returns all results of an ended analysis as a JSON object.

    Args:
        package: The analyzed package.
        session: The analysis.
        folder: Its folder.
    """
    record = session.recorded
    return {
        "package": str(package),
        "folder": str(folder),
        "state": session.state,
        "exit_code": record.exit_code,
        "reason": record.reason,
        "error": session.error,
        "seconds": record.seconds,
        "peak_memory_mb": record.peak_memory_mb,
        "result": package_schema.printable(analysis_folder.read_result(Path(folder))) or None,
    }
