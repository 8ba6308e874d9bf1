"""``check``: a whole run in miniature, before hours go into the real one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from roost.base import durable
from roost.config import layers
from roost.config.settings import Settings
from roost.operations.lifecycle.run_estimate import RunEstimate, estimate_run
from roost.operations.sessions.foreground_lease import choose_one_card
from roost.operations.sessions.project_worker import worker_on_copy
from roost.operations.sessions.rank_layout import one_process_notes
from roost.operations.sessions.running_session import RunningSession
from roost.package.package_draft import prepare_training
from roost.package.results import check_findings
from roost.package.results.check_findings import CheckFindings
from roost.package.sessions import Session
from roost.supervisor.guard_start import GuardProcess


@dataclass(frozen=True, kw_only=True)
class CheckRequest:
    """What is asked."""

    config: Path
    tuning: Path | None = None
    overrides: Sequence[str] = ()
    device: str = "auto"
    """auto, cpu or cuda."""
    command: Sequence[str] = ()


@dataclass(frozen=True)
class RunningCheck:
    """A check that runs."""

    running: RunningSession
    process: GuardProcess
    settings: Settings
    root: Path
    """Where the packages of the run would go."""
    notes: list[str] = field(default_factory=list)
    """What a person should hear about it, one line each."""

    def outcome(self, ended: Session) -> CheckOutcome:
        """What came of it; to be asked before its block is left.

        Args:
            ended: Its session, with the supervisor's record.
        """
        record = ended.record or {}
        findings = check_findings.read(self.running.package)
        code = record.get("exit_code")
        is_ready = ended.state == "succeeded"
        estimate = self._estimate(findings.measured) if is_ready else None
        return CheckOutcome(
            is_ready=is_ready,
            state=ended.state,
            exit_code=code if isinstance(code, int) else 1,
            reason=record.get("reason"),
            error=ended.error,
            failed=None if is_ready else findings.last or None,
            findings=findings,
            warnings=[*findings.warnings, *_disk_warnings(estimate, self.root)],
            estimate=estimate,
        )

    def _estimate(self, measured: Mapping[str, Any]) -> RunEstimate:
        free_bytes = shutil.disk_usage(_nearest_existing(self.root)).free
        return estimate_run(self.settings, measured, free_bytes=free_bytes)


@dataclass(frozen=True, kw_only=True)
class CheckOutcome:
    """What came of a check."""

    is_ready: bool
    state: str
    exit_code: int
    reason: str | None
    error: str | None
    """In one line."""
    failed: str | None
    """The stage that failed, or in which the process died."""
    findings: CheckFindings
    warnings: list[str]
    """Those of the findings, and what is wrong with the estimate."""
    estimate: RunEstimate | None
    """None unless it is ready."""


@contextmanager
def check(request: CheckRequest) -> Iterator[RunningCheck]:
    """Copies the project as `run` would, to a folder that is removed at the end, and starts the check there.

    Nothing is written into ``save_root``. The check ends with the block, and when this process is gone.

    Raises:
        NotFound: There is no such config.
        ConfigError: The config, or a file it names, is wrong.
        Busy: Others hold all GPUs.
        OSError: The project cannot be copied, or no package could be made in ``save_root``.
        RoostError: The supervisor did not start.
    """
    config = layers.load(request.config, tuning=request.tuning, overrides=request.overrides)
    plan = prepare_training(config)
    _require_writable(plan.root)
    notes = [*plan.left_out(), *one_process_notes(plan.settings, device=request.device, where=config.where)]
    session_cards = choose_one_card(request.device)
    notes += session_cards.notes
    with worker_on_copy(
        plan, "check", device=request.device, command=request.command, session_cards=session_cards
    ) as started:
        yield RunningCheck(started.running, started.process, plan.settings, plan.root, notes)


def _disk_warnings(estimate: RunEstimate | None, root: Path) -> list[str]:
    if estimate is None or estimate.fits:
        return []
    return [
        f"the disk of {root} is too small for up to {estimate.checkpoints:,} checkpoints at one time; keep "
        "fewer (checkpoint.fast, slow, best), or choose another save_root"
    ]


def _nearest_existing(root: Path) -> Path:
    """The folder, or the nearest one above it that exists."""
    return next(path for path in (root, *root.parents) if path.exists())


def _require_writable(root: Path) -> None:
    """Makes sure that `run` could make a package there. It makes a folder for an instant, because the rights
    alone do not tell; no reader takes its name for a package.

    Raises:
        OSError: It could not.
    """
    durable.discard(durable.make_staging_folder(_nearest_existing(root) / root.name))
