"""The operation ``check``: a whole run in miniature, before a long run is started."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from roost.base import durable
from roost.config import layers
from roost.config.run_settings import RunSettings
from roost.config.settings import Settings
from roost.operations.lifecycle.run_estimate import RunEstimate, estimate_run
from roost.operations.sessions import archive_requirements, requirements
from roost.operations.sessions.foreground_lease import choose_one_card
from roost.operations.sessions.project_worker import worker_on_copy
from roost.operations.sessions.rank_layout import one_process_notes
from roost.operations.sessions.running_session import RunningSession
from roost.package.kinds import TaskKind
from roost.package.package_draft import prepare_training
from roost.package.results import check_findings
from roost.package.results.check_findings import CheckFindings
from roost.package.sessions import Session
from roost.supervisor.guard_start import GuardProcess


@dataclass(frozen=True, kw_only=True)
class CheckRequest:
    """A request to check a config."""

    config: Path
    project: Path | None = None
    """The folder of the code; None: that of the config (`roost.config.project_folder`)."""
    tuning: Path | None = None
    overrides: Sequence[str] = ()
    device: str = "auto"
    """auto, cpu, cuda, mps or xpu."""
    command: Sequence[str] = ()
    stage: bool = False
    """Whether archives of ``data.stage`` are unpacked even if that takes more than seconds."""


@dataclass(frozen=True)
class RunningCheck:
    """A check whose worker is running."""

    running: RunningSession
    process: GuardProcess
    settings: RunSettings
    root: Path
    """The folder in which the packages of the run would be."""
    notes: list[str] = field(default_factory=list)
    """Notes for the user, one line each."""
    unmet: list[str] = field(default_factory=list)
    """See `CheckOutcome.unmet`."""

    def outcome(self, ended: Session) -> CheckOutcome:
        """Returns the result of the check; to be called before the block of `check` is left.

        Args:
            ended: The ended session of the check, with the supervisor's record.
        """
        record = ended.recorded
        findings = check_findings.read(self.running.package)
        code = record.exit_code
        is_ready = ended.state == "succeeded"
        estimate = self._estimate(findings.measured) if is_ready else None
        return CheckOutcome(
            is_ready=is_ready,
            state=ended.state,
            exit_code=code if isinstance(code, int) else 1,
            reason=record.reason,
            error=ended.error,
            failed=None if is_ready else findings.last or None,
            findings=findings,
            unmet=self.unmet,
            warnings=[*findings.warnings, *self.unmet, *_disk_warnings(estimate, self.root)],
            estimate=estimate,
        )

    def _estimate(self, measured: Mapping[str, Any]) -> RunEstimate | None:
        if not isinstance(self.settings, Settings):
            return None  # the project's own code decides how long it trains
        free_bytes = shutil.disk_usage(_nearest_existing(self.root)).free
        return estimate_run(self.settings, measured, free_bytes=free_bytes)


@dataclass(frozen=True, kw_only=True)
class CheckOutcome:
    """The result of a check."""

    is_ready: bool
    state: str
    exit_code: int
    reason: str | None
    error: str | None
    """One line."""
    failed: str | None
    """The stage that failed, or in which the process died."""
    findings: CheckFindings
    unmet: list[str]
    """What ``require`` asks for and this machine lacks, one line each: a run would be refused here."""
    warnings: list[str]
    """The warnings of the findings, what is unmet, and the warnings of the estimate."""
    estimate: RunEstimate | None
    """None unless the run is ready, and its settings say how long it is."""


@contextmanager
def check(request: CheckRequest) -> Iterator[RunningCheck]:
    """Copies the project as `run` would, to a folder that is removed at the end, and starts the check there.

    Nothing is written into ``save_root``. The check ends with the block, or when this process is gone.

    Raises:
        NotFound: There is no such config, or no archive of ``data.stage``.
        ConfigError: The config, or a file it names, is wrong.
        CardsBusy: Other processes hold all GPUs.
        OSError: The project cannot be copied, or no package could be made in ``save_root``.
        RoostError: The supervisor did not start.
    """
    config = layers.load(request.config, tuning=request.tuning, overrides=request.overrides)
    plan = prepare_training(config, project=request.project)
    _require_writable(plan.root)
    notes = [*plan.notes(), *one_process_notes(plan.settings, device=request.device, where=config.where)]
    archive_requirements.require_archives(plan.settings, project=plan.project, where=config.where)
    require = plan.settings.require
    session_cards = choose_one_card(request.device, required=requirements.card_requirement(require))
    unmet = requirements.unmet(require, session_cards.cards, device=request.device)
    notes += session_cards.notes
    with worker_on_copy(
        plan,
        TaskKind.CHECK,
        device=request.device,
        command=request.command,
        session_cards=session_cards,
        request={"stage": True} if request.stage else {},
    ) as started:
        yield RunningCheck(started.running, started.process, plan.settings, plan.root, notes, unmet)


def _disk_warnings(estimate: RunEstimate | None, root: Path) -> list[str]:
    if estimate is None or estimate.fits:
        return []
    return [
        f"the disk of {root} is too small for up to {estimate.checkpoints:,} checkpoints at the same time; "
        "keep fewer (checkpoint.fast, slow, best), or choose another save_root"
    ]


def _nearest_existing(root: Path) -> Path:
    """Returns the folder, or the nearest one above it that exists."""
    return next(path for path in (root, *root.parents) if path.exists())


def _require_writable(root: Path) -> None:
    """Checks that `run` could make a package in the folder. It makes a folder for an instant, because the
    permission bits alone do not show it; no reader takes its name for that of a package.

    Raises:
        OSError: The folder cannot be written.
    """
    durable.discard(durable.make_staging_folder(_nearest_existing(root) / root.name))
