"""``check``: the whole way of a run in miniature, before hours go into it."""

from __future__ import annotations

import dataclasses
import secrets
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from roost.base import durable
from roost.config import layers
from roost.config.settings import Settings
from roost.operations.estimate import Estimate, estimated
from roost.operations.running import Running, ask, session_of
from roost.operations.scratch import scratch, sweep
from roost.operations.starting import limits, supervise
from roost.package import checked
from roost.package.checked import Found
from roost.package.prepared import PreparedTraining, prepare_training
from roost.package.sessions import Session

_TASK = "check"
"""What the worker is told instead of a session's number."""


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
class Checking:
    """A check that runs."""

    running: Running
    process: subprocess.Popen[bytes]
    settings: Settings
    root: Path
    """Where the packages of the run would go."""
    notes: list[str] = field(default_factory=list)
    """What a person should hear about it, one line each."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of it."""

    is_ready: bool
    state: str
    exit_code: int
    reason: str | None
    error: str | None
    """In one line."""
    failed: str | None
    """The thing that failed, or in which the process died."""
    found: Found
    warnings: list[str]
    estimate: Estimate | None
    """None where it did not get so far."""


@contextmanager
def check(request: CheckRequest) -> Iterator[Checking]:
    """Copies the project as `run` would, into a place that is removed at the end, and starts the walk there.

    Nothing is written into ``save_root``. The walk ends with the block, and when this process is gone.

    Raises:
        NotFound: There is no such config.
        ConfigError: The config, or a file it names, is wrong.
        OSError: The project cannot be copied, or no package could be made in ``save_root``.
        RoostError: The supervisor did not start.
    """
    config = layers.load(request.config, tuning=request.tuning, overrides=request.overrides)
    plan = prepare_training(config)
    _require_writable(plan.root)
    sweep()
    with scratch() as (place, lock_fd):
        started = _start(request, plan, place, lock_fd)
        try:
            yield started
        finally:
            if started.process.poll() is None:
                ask(started.running.session(), now=True)
                started.process.wait()


def _start(request: CheckRequest, plan: PreparedTraining, place: Path, lock_fd: int) -> Checking:
    begun = time.monotonic()
    package = dataclasses.replace(plan, root=place).create("check", command=request.command)
    copied = {"files": len(plan.selection.files), "seconds": time.monotonic() - begun}
    token = secrets.token_hex(16)
    number = package.new_session(
        {
            "kind": "check",
            "command": list(request.command),
            "overrides": [],
            "project": str(plan.project),
            "device": request.device,
            "copied": copied,
            "token": token,
        }
    )
    running = session_of(package, number)
    process = supervise(
        running,
        _TASK,
        plan.settings,
        token=token,
        lock_fd=lock_fd,
        cpu=request.device == "cpu",
        # Whoever waits for a check ends it: neither the wall time of a training nor its stalls do.
        limits=limits(plan.settings.limits)._replace(wall_seconds=None, end_stalled=False),
        stacks=str(package.path / "sessions" / f"{number}.stacks.txt"),
    )
    return Checking(running, process, plan.settings, plan.root, plan.left_out())


def outcome(started: Checking, session: Session) -> Outcome:
    """What came of a check that has ended; to be asked before its block is left."""
    record = session.record or {}
    found = checked.read(started.running.package)
    code = record.get("exit_code")
    is_ready = session.state == "succeeded"
    estimate = _estimate(started, found.measured) if is_ready else None
    return Outcome(
        is_ready=is_ready,
        state=session.state,
        exit_code=code if isinstance(code, int) else 1,
        reason=record.get("reason"),
        error=session.error,
        failed=None if is_ready else found.last or None,
        found=found,
        warnings=[*found.warnings, *_disk(estimate, started.root)],
        estimate=estimate,
    )


def _estimate(started: Checking, measured: Mapping[str, Any]) -> Estimate:
    return estimated(started.settings, measured, free_bytes=shutil.disk_usage(_there(started.root)).free)


def _disk(estimate: Estimate | None, root: Path) -> list[str]:
    if estimate is None or estimate.fits:
        return []
    return [
        f"the disk of {root} is too small: up to {estimate.checkpoints:,} checkpoints stand there at one "
        "time; keep fewer (checkpoint.fast, slow, best), or choose another save_root"
    ]


def _there(root: Path) -> Path:
    """The folder itself, or the one above it that there is."""
    return next(path for path in (root, *root.parents) if path.exists())


def _require_writable(root: Path) -> None:
    """Makes sure that `run` could make a package there, by a folder that stands for an instant, with a name
    that every reader passes over: the rights alone do not tell.

    Raises:
        OSError: It could not.
    """
    durable.discard(durable.make_staging_folder(_there(root) / root.name))
