"""What mending a bottleneck gains: `python bench/bottlenecks.py`, some 3 minutes on an idle machine.

Five runs of tests/system/bottlenecks_project, each slow for another reason. Each is profiled; then the
setting that `roost profile` names gets the value that it suggests, and the run is profiled again. The gain is
the ratio of the samples a second in the measured steps.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parents[1] / "tests" / "system" / "bottlenecks_project"
CASES = {
    "slow disk": ["bottleneck=reading", "latency=0.1", "width=64", "data.batch_size=4", "data.num_workers=1"],
    "slow transform": ["bottleneck=transform", "width=64", "data.batch_size=8"],
    "tiny batch": ["width=64", "data.batch_size=1", "log_every=500"],
    "log each step": ["width=64", "log_every=1", "+statistics.every=1", "+statistics.histograms=true"],
    "validation too often": ["bottleneck=validation", "width=64", "validate_every=5"],
    "none: it computes": ["width=2048", "data.batch_size=128"],
}
_LONGER = 5.0
"""How much longer than the measured time a run is, in seconds: for the steps before it."""


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=8.0, help="measured time of each run")
    parser.add_argument("--repeat", type=int, default=1, help="pairs of runs; the median gain is printed")
    options = parser.parse_args()
    print("| bottleneck | named | setting | predicted | measured |")
    print("|---|---|---|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        for name, overrides in CASES.items():
            print(_row(name, Path(folder), overrides, options.seconds, options.repeat), flush=True)


def _row(name: str, folder: Path, overrides: list[str], seconds: float, repeat: int) -> str:
    gains, predicted, before, suggested = [], [], "", ""
    found: dict[str, Any] = {}
    for _ in range(repeat):
        slow, found = _run(folder, overrides, seconds)
        if found["setting"] is None:
            return f"| {name} | {found['kind']}, {found['share']:.0%} | – | – | – |"
        before, suggested = found["received"], suggested or found["suggested"]
        mended, _ = _run(folder, [*overrides, f"{found['setting']}={suggested}"], seconds)
        gains.append(mended / slow)
        predicted.append(found["speedup"])
    gain, expected = sorted(gains)[len(gains) // 2], sorted(predicted)[len(predicted) // 2]
    setting = f"`{found['setting']}`: {before} → {suggested}"
    return f"| {name} | {found['kind']}, {found['share']:.0%} | {setting} | {expected:.1f}× | {gain:.1f}× |"


def _run(folder: Path, overrides: list[str], seconds: float) -> tuple[float, dict[str, Any]]:
    """Returns the samples a second of a profiled run, and its first bottleneck."""
    project = folder / "project"
    shutil.rmtree(project, ignore_errors=True)
    shutil.copytree(PROJECT, project)
    environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state"), "OMP_NUM_THREADS": "1"}
    program = [sys.executable, "-m", "roost"]
    times = ["max_steps=1000000", f"max_time={seconds + _LONGER:g}s", f"profile.seconds={seconds}"]
    subprocess.run(
        [*program, "run", str(project / "config.yaml"), "--name", "run", *overrides, *times],
        env=environment,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    package = project / "runs" / "run"
    shown = subprocess.run(
        [*program, "profile", str(package), "--json"], env=environment, check=True, stdout=subprocess.PIPE
    )
    record = json.loads((package / "profile" / "1" / "profile.json").read_text())
    return record["samples"] / record["seconds"], json.loads(shown.stdout)["bottlenecks"][0]


if __name__ == "__main__":
    main()
