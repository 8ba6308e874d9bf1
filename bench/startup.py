"""How long a person waits before anything happens.

    python bench/startup.py [--rounds 15] [--packages 10000]

1. Commands: `roost --help` and `roost ls` over many packages (index cached, and the first time), beside bare
   `python -c pass` and a bare click program of the same interpreter.
2. A run: from the call of `run` to its package, to the recorded session with a running worker, and to the
   first training step, beside a cold hand-written script that takes one step of the same optimizer.

Medians of whole processes, in turn; wall clock.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from roost.operations.run import RunRequest, run
from roost.package import progress
from roost.package.package import Package
from roost.package.records import Writer

CLICK = "import click\n@click.group()\ndef main(): pass\nmain(['--help'], standalone_mode=False)"
COLD = """
import torch
model = torch.nn.Linear(16, 1)
optimizer = torch.optim.AdamW(model.parameters())
model(torch.randn(8, 16)).mean().backward()
optimizer.step()
"""


def seconds(command: list[str], cwd: Path | None = None) -> float:
    began = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, cwd=cwd)
    return time.perf_counter() - began


def make_packages(root: Path, count: int) -> None:
    """Small finished packages: settings, one session, ten rows."""
    for number in range(count):
        package = Package.create(root, name=f"run-{number:05d}", values={"max_steps": 10, "seed": number})
        package.new_session({"kind": "train"})
        record = b'{"state": "succeeded", "exit_code": 0, "started": 1.0, "ended": 2.0, "seconds": 1.0}'
        (package.path / "sessions" / "1.json").write_bytes(record)
        writer = Writer(package.path / "records" / "1.jsonl", session=1, start_step=0)
        for step in range(10):
            writer.row(step + 1, 0, {"train/loss": 1.0 / (step + 1), "valid/loss": 2.0 / (step + 1)})
        writer.close()


def table(rows: dict[str, list[float]], base: str) -> None:
    print("| what | median ms | min … max | × |\n|---|---|---|---|")
    against = statistics.median(rows[base])
    for name, values in rows.items():
        middle = statistics.median(values)
        spread = f"{min(values) * 1e3:.0f} … {max(values) * 1e3:.0f}"
        print(f"| {name} | {middle * 1e3:.0f} | {spread} | {middle / against:.1f} |")
    print(flush=True)


def commands(rounds: int, count: int) -> None:
    roost = str(Path(sys.executable).parent / "roost")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = f"{folder}/cache"
        root = Path(folder) / "runs"
        began = time.perf_counter()
        make_packages(root, count)
        print(f"made {count} packages in {time.perf_counter() - began:.1f} s\n", file=sys.stderr)
        first = seconds([roost, "ls", str(root)])
        cases: dict[str, Callable[[], float]] = {
            "python -c pass": lambda: seconds([sys.executable, "-c", "pass"]),
            "a bare click program": lambda: seconds([sys.executable, "-c", CLICK]),
            "roost --help": lambda: seconds([roost, "--help"]),
            f"roost ls, {count} packages, cached": lambda: seconds([roost, "ls", str(root)]),
        }
        rows: dict[str, list[float]] = {name: [] for name in cases}
        for _ in range(rounds):
            for name, case in cases.items():
                rows[name].append(case())
        rows[f"roost ls, {count} packages, the first time"] = [first]
    table(rows, "python -c pass")


def one_run(root: Path, project: Path) -> tuple[float, float]:
    """(seconds to the running worker, seconds to the first step)."""
    began = time.perf_counter()
    overrides = [f"save_root={root}", "max_steps=1"]
    started = run(RunRequest(config=project / "config.yaml", overrides=overrides))
    running = time.perf_counter() - began
    while True:
        seen = progress.read(started.package / "progress")
        if seen is not None and seen.step >= 1:
            first_step = time.perf_counter() - began
            break
        time.sleep(0.001)
    assert started.process is not None and started.process.wait() == 0
    return running, first_step


def first_steps(rounds: int) -> None:
    project = Path(__file__).parents[1] / "src" / "roost" / "templates" / "clean"
    script, worker, step = "hand-written script, one step", "run: worker running", "run: first step"
    rows: dict[str, list[float]] = {script: [], worker: [], step: []}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(rounds + 1):
            rows[script].append(seconds([sys.executable, "-c", COLD]))
            running, first_step = one_run(Path(folder), project)
            rows[worker].append(running)
            rows[step].append(first_step)
    table({name: values[1:] for name, values in rows.items()}, script)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--packages", type=int, default=10_000)
    asked = parser.parse_args()
    commands(asked.rounds, asked.packages)
    first_steps(min(asked.rounds, 7))
