"""Runs with a time limit, on a disk on which a checkpoint takes about two seconds."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from roost.package import live_progress
from roost.package.checkpoints import checkpoint
from roost.package.package import PackageFolder
from tests.project.projects import DATASET, RUNNER

ROOST = str(Path(sys.executable).parent / "roost")
LIMIT_SECONDS = 8
_LEAST_SHARE = 3 / 8
"""Of the limit: a quarter, which a save is taken to need before one was seen, and a tenth for the end."""

SLOW_DISK = """
import time
from roost.base import durable

def slow(operation, path):
    if operation == "fsync" and "Checkpoints" in path:
        time.sleep(0.2)

durable.fault = slow
"""
CONFIG = {
    "runner": "Model/Runner.py:Runner",
    "dataset": "Dataset.py:Dataset",
    "max_steps": 10**9,
    "width": 3,
    "data": {"batch_size": 10, "num_workers": 0},
    "optimizers": {"main": {"class": "torch.optim.Adam"}},
    "validate_every": "20s",
    "log_every": "1s",
}


class Ended(NamedTuple):
    """What a run with a time limit left."""

    limit_seconds: int
    exit_code: int
    reason: str
    left_seconds: float
    """Before the limit, when its last process had ended."""
    saves: list[float]
    """How long before the limit each checkpoint stood, in their order."""
    is_last_step: bool
    """Whether the newest checkpoint is of the last step that was done; also where there are neither."""
    left_at_start: float
    """Seconds before the limit when training began."""
    output: str

    def in_time(self) -> bool:
        """Whether it ended as specified: saved in its last step, and that before the limit. Where the start
        left no time for a save, it had nothing to save."""
        is_right = self.exit_code == 75 and self.reason == "time limit" and self.is_last_step
        least = _LEAST_SHARE * self.limit_seconds
        return is_right and (self.saves[-1] > 0 if self.saves else self.left_at_start < least)


def started(folder: Path, *, every: str, seconds: int) -> subprocess.Popen[bytes]:
    """The program, with a time limit of so many seconds, on a project below ``folder``."""
    project = folder / "project"
    (project / "Model").mkdir(parents=True)
    (project / "Model" / "Runner.py").write_text(SLOW_DISK + RUNNER)
    (project / "Dataset.py").write_text(DATASET)
    config = {**CONFIG, "checkpoint": {"every": every}, "limits": {"wall_time": f"{seconds}s"}}
    (project / "config.yaml").write_text(json.dumps(config))
    command = [ROOST, "run", "-c", str(project / "config.yaml"), "--name", "limited"]
    return subprocess.Popen(
        [*command, "-CPU", f"save_root={folder / 'runs'}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def ended(folder: Path, process: subprocess.Popen[bytes], *, seconds: int) -> Ended:
    """Waits for it, and looks at what it left."""
    exit_code = process.wait(seconds + 60)
    package = PackageFolder.open(folder / "runs" / "limited")
    record = json.loads((package.path / "sessions" / "1.json").read_bytes())
    limit = record["started"] + seconds
    stood = []
    for id in checkpoint.ids(package.checkpoints):
        path = checkpoint.checkpoint_folder(package.checkpoints, id)
        checkpoint.verify(path)
        stood.append(limit - path.stat().st_ctime)  # when it got its name
    output = package.output.read_text()
    last = checkpoint.read_manifests(package.checkpoints)[-1].step if stood else 0
    [left] = re.findall(r"^ends\b.* \(in ([\d.]+)s\)", output, re.M) or [0.0]  # else it was past
    seen = live_progress.read(package.progress)
    is_last_step = (seen.step if seen is not None else 0) == last
    return Ended(
        limit_seconds=seconds,
        exit_code=exit_code,
        reason=record["reason"],
        left_seconds=limit - record["ended"],
        saves=stood,
        is_last_step=is_last_step,
        left_at_start=float(left),
        output=output,
    )


def has_begun_or_ended(folder: Path, process: subprocess.Popen[bytes]) -> bool:
    """Whether its start is over, or took all of the time."""
    if process.poll() is not None:
        return True
    output = folder / "runs" / "limited" / "_output.txt"
    return output.exists() and re.search(r"^ends\b", output.read_text(), re.M) is not None
