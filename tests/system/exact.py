"""Killing a run for real and comparing what comes out of it, bit for bit."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from roost.base import safetensors_format, state_tree
from roost.config import layers
from roost.operations.lifecycle.continue_ import ContinueRequest, continue_
from roost.operations.lifecycle.run import RunRequest, run
from roost.operations.sessions.rank_layout import RankRequest
from roost.operations.sessions.session_request import StartedSession
from roost.package import live_progress, snapshot
from roost.package.checkpoints import checkpoint, retention
from roost.package.package import PackageFolder
from roost.package.records import PERF
from roost.package.results import skipped_steps

PROJECT = Path(__file__).parent / "exact_project"
_NOT_EXACT = ("seconds",)

_GAN = "{class: torch.optim.Adam, lr: 2e-3, params: '%s.*', max_grad_norm: 1.0%s}"
_PLATEAU = (
    "{class: torch.optim.lr_scheduler.ReduceLROnPlateau, unit: validation, monitor: valid/loss, "
    "patience: 0, factor: 0.5}"
)
_STOPPING = "{monitor: valid/likelihood, mode: max, min_delta: 1e-3, min_delta_mode: relative, patience: 9}"
_AVERAGES = "{ema: {decay: 0.9}, swa: {method: swa, every: 1ep, start: 2ep}}"
KINDS: dict[str, list[str]] = {
    "mlp": ["net=mlp"],
    "cnn": [],
    "transformer": ["net=transformer", "precision=bf16", "gradient_accumulation_steps=3"],
    "gan": [
        "runner=project.py:Gan",
        "~optimizers.main",
        f"+optimizers.d={_GAN % ('d', '')}",
        f"+optimizers.g={_GAN % ('g', ', every_n_steps: 2')}",
    ],
    "plateau": ["net=mlp", "~optimizers.main.scheduler", f"+optimizers.main.scheduler={_PLATEAU}"],
    "fp16": ["net=mlp", "precision=fp16", "factor=30"],  # the first scales are too large
    "averages": [
        f"+averages={_AVERAGES}",
        "checkpoint.best=[{monitor: valid/ema/loss, mode: min, top_k: 2}]",
        "early_stopping.monitor=valid/ema/loss",
    ],
    "watched": [
        "+statistics={every: 3, updates: true, histograms: true}",
        f"early_stopping={_STOPPING}",
        "checkpoint.best=[{monitor: train/loss, mode: min, top_k: 2}, {monitor: stats/grad_norm, mode: max}]",
        "+visualize_every=1ep",
        "+visualize_samples=5",
    ],
    "skip": ["on_non_finite=skip", "on_step_error=skip", "bad.nan=[17, 60]", "bad.error=[33]"],
    "rollback": ["on_non_finite=rollback", "bad.nan=[60]", "max_epochs=3"],
}
"""Projects of every kind: what each changes in the settings of the one."""


def create(root: Path, overrides: list[str]) -> PackageFolder:
    """A package of the project with other settings."""
    config = layers.load(PROJECT / "config.yaml", overrides=overrides)
    return PackageFolder.create(
        root, values=config.values, provenance=config.provenance, selection=snapshot.select(PROJECT)
    )


def uninterrupted(root: Path, overrides: list[str]) -> dict[str, Any]:
    """The result of the run on two ranks without interruption."""
    package = create(root, overrides)
    forked = [sys.executable, str(Path(__file__).with_name("forked.py")), "--ranks", "2", str(package.path)]
    assert subprocess.run(forked, stdout=subprocess.PIPE).stdout == b"0\n", package.output.read_text()
    return fingerprint(package.path)


def start(root: Path, overrides: list[str], *, ranks: RankRequest | None = None) -> StartedSession:
    """A new run of the project, its packages below ``root``; on the CPU where several ranks are asked for."""
    given = [f"save_root={root}", *overrides]
    device = "cpu" if ranks is not None else None
    return run(
        RunRequest(
            config=PROJECT / "config.yaml", overrides=given, device=device, ranks=ranks or RankRequest()
        )
    )


def go_on(package: Path, overrides: list[str]) -> StartedSession:
    return continue_(ContinueRequest(package=package, overrides=overrides))


def wait(started: StartedSession) -> int:
    assert started.process is not None
    return started.process.wait(timeout=100)


def kill_group(started: StartedSession) -> None:
    """SIGKILL to the supervisor and to the worker's whole group, as when a machine loses power."""
    assert started.process is not None
    for pid in (started.process.pid, *ranks_of(started)):
        try:
            os.killpg(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    started.process.wait(timeout=100)
    # The guard is gone; the supervisor and the worker are not our children, so the kernel may still be at it.
    package = PackageFolder.open(started.package)
    deadline = time.monotonic() + 10
    while package.state == "running":
        assert time.monotonic() < deadline, "not killed within 10 s"
        time.sleep(0.005)
    os.close(package.lock())


def ranks_of(started: StartedSession) -> list[int]:
    """The pids of a session's workers, by rank."""
    record = json.loads((started.package / "sessions" / f"{started.session}.json").read_bytes())
    return [one["pid"] for one in record["ranks"]] if record.get("ranks") else [record["worker_pid"]]


Moment = Callable[[Path, float], bool]


def at_phase(name: str, after_step: int) -> Moment:
    """True once the run publishes that phase, later than a step."""

    def reached(package: Path, _: float) -> bool:
        look = live_progress.read(package / "progress")
        return look is not None and look.phase == name and look.step > after_step

    return reached


def after_seconds(seconds: float) -> Moment:
    """True a while after the run has begun to train."""
    begun: list[float] = []

    def reached(package: Path, now: float) -> bool:
        look = live_progress.read(package / "progress")
        if not begun and look is not None and look.phase != "starting":
            begun.append(now)
        return bool(begun) and now - begun[0] >= seconds

    return reached


def kill_when(
    started: StartedSession, moment: Moment, kill: Callable[[StartedSession], None] = kill_group
) -> bool:
    """Kills at the moment; False when the run ended before."""
    assert started.process is not None
    deadline = time.monotonic() + 60
    while started.process.poll() is None:
        if moment(started.package, time.monotonic()):
            kill(started)
            return True
        assert time.monotonic() < deadline, "neither the moment nor the end came"
        time.sleep(0.0005)
    return False


def random_moment(chance: random.Random, last_step: int = 44) -> Moment:
    """Somewhere while it starts, in training, in a validation or inside a save."""
    kind, step = chance.random(), chance.randrange(0, last_step)
    if kind < 0.1:
        asked = time.monotonic() + chance.uniform(0.0, 0.2)
        return lambda _, now: now >= asked
    if kind < 0.3:
        return after_seconds(chance.uniform(0.0, 0.5))
    if kind < 0.6:
        return at_phase("training", step)
    return at_phase("saving" if kind < 0.8 else "validating", step)


def fingerprint(package: Path) -> dict[str, Any]:
    """What must be equal: the final state (weights, optimizer, generators, hooks with best list and
    patience, counters) as digests, and every recorded value."""
    opened = PackageFolder.open(package)
    newest = opened.store().lineage()[-1]
    _, states = checkpoint.read(checkpoint.checkpoint_folder(opened.checkpoints, newest.id))
    trainer, columns = states["trainer"], opened.records()
    for name in _NOT_EXACT:
        trainer["progress"].pop(name)
    rows = [{k: v for k, v in row.items() if is_exact(k)} for row in columns.rows]
    passed_over = skipped_steps.read(package / skipped_steps.NAME, columns.starts)
    monitor = opened.settings["checkpoint"]["best"][0]["monitor"]
    best = retention.best_checkpoints(opened.store().lineage(), retention.BestRule(monitor=monitor, top_k=2))
    return {
        "step": newest.step,
        "inexact": trainer.pop("inexact"),
        "data": _digest(trainer.pop("data")),
        "rows": rows,
        "media": {
            path.relative_to(package).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted((package / "media").rglob("*.*"))  # nor is anything left that was not finished
        },
        "skipped": [(one.step, one.kind, one.samples) for one in passed_over],
        "best": [(info.step, info.metrics[monitor]) for info in best],
        **{name: _digest(state) for name, state in states.items()},
    }


def is_exact(name: str) -> bool:
    return name != "time" and not name.startswith(PERF)


def _digest(state: Any) -> str:
    skeleton, leaves = state_tree.pack(state)
    digest = hashlib.sha256(json.dumps(skeleton, sort_keys=True).encode())
    for chunk in safetensors_format.serialize(leaves):
        digest.update(chunk)
    return digest.hexdigest()
