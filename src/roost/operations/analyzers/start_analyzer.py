"""``submit analyze``: queues an analyzer, a task that loads a package once and then runs one script after
another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roost.analysis import preconditions
from roost.base.errors import NotFound
from roost.base.text.typed_path import typed_path
from roost.devices.resource_request import TaskOptions
from roost.operations import resolve
from roost.operations.queue.new_tasks import NewTasks
from roost.operations.queue.reading_task import queue_reading_task
from roost.operations.reading import package_schema
from roost.package.checkpoints import selection
from roost.package.kinds import TaskKind
from roost.package.package import PackageFolder


@dataclass(frozen=True, kw_only=True)
class AnalyzerRequest:
    """A request for an analyzer."""

    package: Path
    checkpoint: str | int | None = None
    """``last``, ``best`` or an id; None: ``last``, the newest good one when the analyzer loads it."""
    untrained: bool = False
    """Use the weights as the Runner builds them."""
    trust: bool = False
    """Read pickles of the checkpoint that are not signed with the key of this user."""
    scripts: Path | None = None
    """A further folder of scripts that it may run, or a single script; None: only those of AnalyzeScripts of
    the project and the package."""
    project: Path | None = None
    """The folder of the project now; None: its recorded folder."""
    options: TaskOptions = TaskOptions()  # noqa: RUF009  - immutable
    command: Sequence[str] = ()


def start_analyzer(request: AnalyzerRequest) -> NewTasks:
    """Queues an analyzer. It takes no lock of the package: the training may be running, and other analyzers
    too. It runs until `stop`, whatever becomes of the caller.

    Raises:
        NotFound: There is no such package, checkpoint, project or folder of scripts.
        DamagedPackage: A file of the package is not as roost writes it.
        CheckpointError: There are checkpoints, but roost has written none of them.
        UsageError: ``untrained`` with a checkpoint, or options contradict each other.
        Refused: The package has no Runner or cannot be written; or the task could never start.
        ConfigError: The package's settings do not fit this version.
        RoostError: The daemon did not start.
    """
    package = preconditions.open_with_runner(resolve.find_package(request.package), by=_open_checked)
    project = preconditions.project_folder(package, request.project)
    checkpoint = selection.checkpoint_id(package, request.checkpoint)
    notes = preconditions.check_checkpoints(package, checkpoint, untrained=request.untrained)
    settings = package_schema.checked_settings(package, project)
    scripts = _existing(request.scripts)
    body: dict[str, Any] = {
        "package": str(package.path),
        "checkpoint": checkpoint,
        "untrained": request.untrained,
        "trust": request.trust,
        "project": str(project),
        "scripts": str(scripts) if scripts is not None else None,
        "command": list(request.command),
    }
    return queue_reading_task(package, TaskKind.ANALYZE, body, request.options, settings).with_notes(notes)


def _open_checked(path: Path) -> PackageFolder:
    return package_schema.open_checked(path, to_continue=True)


def _existing(scripts: Path | None) -> Path | None:
    if scripts is None:
        return None
    path = typed_path(scripts).absolute()
    if not path.exists():
        raise NotFound("there is no such script or folder", setting="-s", received=str(scripts))
    return path
