"""``analyze``: runs a script on what a package trained."""

from __future__ import annotations

import hashlib
import secrets
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roost.analysis import folder, foreign, script
from roost.analysis.script import Script
from roost.base import durable
from roost.base.errors import ContractError, NotFound, UsageError
from roost.config.settings import Settings
from roost.lab import start
from roost.lab.spec import Spec
from roost.operations import intact
from roost.operations.running import Running
from roost.operations.starting import Started, environment, limits
from roost.package import snapshot
from roost.package.package import Package
from roost.package.project_files import checked
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


def analyze(request: AnalyzeRequest) -> Started:
    """Starts an analysis. It takes no lock: the package's training may be running. It ends when the process
    that called this is gone.

    Raises:
        NotFound: There is no such package, script, checkpoint or project.
        ContractError: The script has no `experience` that can be called, or the package no Runner.
        DamagedPackage: A file of the package is not as roost writes it.
        CheckpointError: There are checkpoints, and none was written by roost.
        Refused: The package is a file, or the analysis cannot be stored.
        ConfigError: The package's settings do not fit this version.
        RoostError: The supervisor did not start.
    """
    if request.untrained and request.checkpoint is not None:
        raise UsageError("--untrained takes no checkpoint", fix="leave out -c or --untrained")
    package = _opened(request.package.expanduser())
    project = _project(package, request.project)
    found = script.read(script.find(request.script, [project / script.FOLDER, package.path / script.FOLDER]))
    notes = [f"script: {found.path}"]
    if not request.untrained:
        notes += foreign.check_checkpoints(package, request.checkpoint)
    settings = checked(
        intact.settings(package), project=project, package=str(package.path), where=package.provenance.get
    )
    notes += _links(package, project, renew=request.project is not None)
    place = folder.make(_root(package, request.out))
    started = _start(package, place, request, found, project, settings)
    started.notes = notes
    return started


def _root(package: Package, out: Path | None) -> Path:
    return out.expanduser().absolute() if out is not None else package.path / folder.NAME


def _opened(path: Path) -> Package:
    foreign.refuse_file(path)
    begun = (path / "args.json").exists() or (path / "Checkpoints").is_dir()
    if begun and not (path / "request.json").exists():
        raise NotFound(
            "the package is half-written: it has no request.json, which is written last",
            where=path,
            fix="its `roost run` was cut off before anything ran: remove it, and run again",
        )
    package = intact.opened(path, to_go_on=True)
    if package.args.get("runner") is None:
        raise ContractError(
            "the package names no Runner, so there is nothing to build",
            where=path,
            fix="read what it holds from Python: `with roost.open_package(path) as run: run.load()`",
        )
    return package


def _project(package: Package, given: Path | None) -> Path:
    if given is None:
        return package.project
    if not given.expanduser().is_dir():
        raise NotFound("there is no such folder", setting="--project", received=str(given))
    return given.expanduser().resolve()


def _links(package: Package, project: Path, *, renew: bool) -> list[str]:
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
    package: Package, place: Path, request: AnalyzeRequest, found: Script, project: Path, settings: Settings
) -> Started:
    token = secrets.token_hex(16)
    durable.write(place / folder.SCRIPT, found.source)
    folder.write_request(
        place,
        {
            "package": str(package.path),
            "script": {"path": str(found.path), "sha256": hashlib.sha256(found.source).hexdigest()},
            "checkpoint": request.checkpoint,
            "untrained": request.untrained,
            "device": request.device,
            "project": str(project),
            "command": list(request.command),
            "token": token,
            "created": round(time.time(), 3),
        },
    )
    running = Running(
        package.path,
        int(place.name),
        request=place / folder.REQUEST,
        record=place / folder.RECORD,
        output=place / folder.OUTPUT,
    )
    spec = Spec(
        argv=[sys.executable, "-P", "-m", "roost.worker", str(package.path), str(place)],
        cwd=str(package.path),
        env=environment(seed=settings.seed, cpu=request.device == "cpu"),
        package=str(package.path),
        session=running.number,
        output=str(running.output),
        session_file=str(running.record),
        token=token,
        # The wall time is that of a training; whoever waits for an analysis ends it.
        limits=limits(settings.limits)._replace(wall_seconds=None),
        stacks=str(place / folder.STACKS),
    )
    return Started(package.path, running, start.start(spec, lock_fd=None).process)


def outcome(running: Running, session: Session) -> dict[str, Any]:
    """Everything about an analysis that has ended, as one mapping for programs."""
    place = running.record.parent
    record = session.record or {}
    ending = {name: record.get(name) for name in ("exit_code", "reason", "error", "peak_memory_mb")}
    return {
        "package": str(running.package),
        "folder": str(place),
        "state": session.state,
        **ending,
        "result": intact.printable(folder.read_result(place)) or None,
    }
