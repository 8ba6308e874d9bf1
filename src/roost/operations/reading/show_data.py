"""``show --data``: the sets of a project, how their batches are made, and how fast."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from roost.base.errors import Refused
from roost.config import layers
from roost.config.layers import Config, Layer
from roost.config.project_folder import given_folder
from roost.config.run_settings import Contract
from roost.operations.reading import package_schema
from roost.operations.sessions.project_worker import worker_on_copy
from roost.operations.sessions.rank_layout import one_process_notes
from roost.operations.sessions.running_session import RunningSession
from roost.package.dlnest.named_paths import PLACES
from roost.package.kinds import PackageKind, TaskKind
from roost.package.package import PackageFolder
from roost.package.package_draft import TrainingDraft, prepare_training
from roost.package.project_preflight import parse_package_settings, require_runner
from roost.package.results import check_findings as findings
from roost.package.results.data_report import SplitReport
from roost.package.sessions import Session
from roost.package.snapshot import Selection
from roost.supervisor.guard_start import GuardProcess

_PLACEHOLDER_RUNNER = {
    "model": {"class": "torch.nn.Identity"},
    "losses": {"none": {"class": "torch.nn.MSELoss"}},
}
_LIMIT_SETTINGS = ("max_epochs", "max_steps", "max_time")


@dataclass(frozen=True, kw_only=True)
class ShowDataRequest:
    """A request to inspect the data of a project."""

    config: Path
    """The config; or a package, whose own settings and code are used."""
    project: Path | None = None
    """The project's folder; None: that of the config (`roost.config.project_folder`), or of the package."""
    tuning: Path | None = None
    overrides: Sequence[str] = ()
    command: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class DataReport:
    """The data of a project."""

    state: str
    exit_code: int
    reason: str | None
    error: str | None
    """In one line."""
    failed: str | None
    """The stage that failed or in which the process died: a set, or a stage before the sets."""
    warnings: list[str]
    """Settings that do not have the effect that they seem to have."""
    splits: list[SplitReport]
    """The splits inspected before the end; a set that failed is partly filled in."""


@dataclass(frozen=True)
class RunningDataInspection:
    """An inspection of data in progress."""

    running: RunningSession
    process: GuardProcess
    notes: list[str] = field(default_factory=list)
    """Notes for the user, one line each."""

    def stage(self) -> str:
        """Returns the current stage."""
        return findings.read(self.running.package).last

    def outcome(self, ended: Session) -> DataReport:
        """Returns the result of the ended session. Must be called inside the ``with`` block of
        `show_data`."""
        record = ended.recorded
        found, code = findings.read(self.running.package), record.exit_code
        return DataReport(
            state=ended.state,
            exit_code=code if isinstance(code, int) else 1,
            reason=record.reason,
            error=ended.error,
            failed=None if ended.state == "succeeded" else found.last or None,
            warnings=found.warnings,
            splits=[msgspec.convert(one, SplitReport) for one in found.measured.values()],
        )


@contextmanager
def show_data(request: ShowDataRequest) -> Iterator[RunningDataInspection]:
    """Builds the data in a copy of the project, and draws some batches of each set.

    The config needs no Runner. Nothing is written into ``save_root`` or a package. The worker ends with the
    ``with`` block, or with this process.

    Raises:
        NotFound: There is no such config or project, or the folder is not a package.
        ConfigError: The config, or a file it names, is wrong.
        DamagedPackage: A file of the package is not as roost writes it.
        Refused: The package has no Runner.
        OSError: The project cannot be copied.
        RoostError: The supervisor did not start.
    """
    plan = _draft_from_package(request) if request.config.is_dir() else _draft_from_config(request)
    if plan.kind is PackageKind.DLNEST:
        raise Refused(
            "DLNest's contract does not say what a batch is, so its data cannot be described",
            setting="--data",
            received=str(request.config),
            fix="look at self.dataset in a script: roost analyze PACKAGE -s SCRIPT --untrained",
        )
    notes = [*plan.notes(), *one_process_notes(plan.settings, device="auto", where=plan.config.where)]
    with worker_on_copy(plan, TaskKind.DATA_REPORT, command=request.command) as started:
        yield RunningDataInspection(started.running, started.process, notes)


def _draft_from_config(request: ShowDataRequest) -> TrainingDraft:
    config = layers.load(request.config, tuning=request.tuning, overrides=request.overrides)
    return prepare_training(_with_placeholders(config), project=request.project)


def _with_placeholders(config: Config) -> Config:
    """Returns the config with values for settings that a training requires and the data does not need."""
    if config.contract is Contract.DLNEST:
        return config
    values, own = config.values, dict[str, Any]()
    if "runner" not in values and "dataset" in values:
        # The Runner is never built: any existing class will do.
        own["runner"] = values["dataset"] if isinstance(values["dataset"], str) else _PLACEHOLDER_RUNNER
    if not any(values.get(key) is not None for key in _LIMIT_SETTINGS):
        own["max_epochs"] = 1
    return dataclasses.replace(
        config, values={**values, **own}, layers=(Layer("default", own), *config.layers)
    )


def _draft_from_package(request: ShowDataRequest) -> TrainingDraft:
    package = package_schema.open_checked(request.config, to_continue=True)
    require_runner(package)
    config = layers.load(
        package.path / "args.json",
        tuning=request.tuning,
        overrides=[*_effective_overrides(package), *request.overrides],
    )
    project = package.project if request.project is None else given_folder(request.project)
    settings = parse_package_settings(
        package, config.values, project=project, folder="${package}", where=config.where
    )
    return TrainingDraft(
        config=config,
        kind=PackageKind.of(package.request),
        project=project,
        places=package.request.get(PLACES) or {},
        root=package.path.parent,
        selection=_selection(package),
        description=None,
        settings=settings,
    )


def _effective_overrides(package: PackageFolder) -> list[str]:
    """Returns the overrides of all effective sessions, in their order."""
    records = package.path / "records"
    effective = [session for session in package.sessions() if session.is_effective(records)]
    return [text for session in effective for text in session.request.overrides]


def _selection(package: PackageFolder) -> Selection:
    manifest = package.manifest
    links = {name: os.path.realpath(package.path / name) for name in manifest["links"]}
    return Selection(package.path, files=list(manifest["files"]), links=links)
