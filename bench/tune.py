"""The settings that `roost tune` finds, compared with the best that are found by hand.

    python bench/tune.py [--seconds 60] [--rounds 2]

Each toy is a project with a known bottleneck. By hand: `roost run` with each number of loader workers, one
after another; the speed of a number is the median of `perf/samples_per_second` over the rows of its runs,
without the first row. Then `roost tune --what workers --seconds N`, and its choice is looked up in the same
table. A choice between the numbers that were run by hand is run too.

- *waits*: samples of 5 ms of sleep, as of a disk or network; batches of 16; the config says 1 worker;
- *computes*: samples of 2 ms of CPU time, likewise;
- *slow step*: samples without cost, a step of 30 ms; the config says 1 worker.

Goals: at least 90 % of the best speed by hand; the slow step keeps its worker.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from roost.package import records

CODE = """
import time
import torch
from torch import nn
import roost


class Points(torch.utils.data.Dataset):
    def __init__(self, args):
        self.args = args
        self.x = torch.randn(4000, 32, generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        time.sleep(self.args["sample_sleep"])
        end = time.thread_time() + self.args["sample_cpu"]
        while time.thread_time() < end:
            pass
        return self.x[index], (self.x[index].sum() > 0).long()


class Dataset(roost.Dataset):
    def build(self):
        return roost.Data(train=Points(self.args))


class Runner(roost.Runner):
    def build(self):
        self.net = nn.Linear(32, 2)

    def loss(self, batch):
        time.sleep(self.args["step_sleep"])
        return nn.functional.cross_entropy(self.net(batch[0]), batch[1])
"""
CONFIG = """
runner: toy.py:Runner
dataset: toy.py:Dataset
max_steps: 60
log_every: 10
threads: 1
sample_sleep: 0.0
sample_cpu: 0.0
step_sleep: 0.0
data: {batch_size: 16, num_workers: 1}
optimizers: {main: {class: torch.optim.SGD, lr: 0.01}}
"""
TOYS = {
    "waits": ["sample_sleep=0.005"],
    "computes": ["sample_cpu=0.002"],
    "slow step": ["step_sleep=0.03"],
}
WORKERS = (0, 1, 2, 4, 8, 16)
ROOST = [sys.executable, "-m", "roost"]


def run_rates(folder: Path, overrides: list[str], workers: int) -> list[float]:
    """Returns the samples per second of the rows of a run, without the first."""
    output = ["run", "config.yaml", *overrides, f"data.num_workers={workers}", "-CPU", "-d", f"{workers}"]
    said = subprocess.run([*ROOST, *output], cwd=folder, check=True, capture_output=True, text=True)
    package = next(line for line in said.stderr.splitlines() if line.startswith("package: "))
    found = records.fold(folder / package.removeprefix("package: ").strip("'") / "records")
    return found.perf["perf/samples_per_second"][1][1:]


def tuned(folder: Path, overrides: list[str], seconds: float) -> dict[str, object]:
    """Returns the finding of the loader workers."""
    words = ["tune", "config.yaml", *overrides, "--what", "workers", "--seconds", f"{seconds:g}", "-CPU"]
    said = subprocess.run([*ROOST, *words, "--json"], cwd=folder, check=True, capture_output=True, text=True)
    finding: dict[str, object] = json.loads(said.stdout)["report"]["findings"][0]
    return finding


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rounds", type=int, default=2)
    given = parser.parse_args()
    columns = " | ".join(f"{one} workers" for one in WORKERS)
    print(f"| samples/s by hand | {columns} | tuned from 1 to | of the best by hand |")
    print(f"|---|{'---|' * (len(WORKERS) + 2)}")
    for name, overrides in TOYS.items():
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            (folder / "toy.py").write_text(CODE)
            (folder / "config.yaml").write_text(CONFIG)
            found: dict[int, list[float]] = {one: [] for one in WORKERS}
            for _ in range(given.rounds):
                for one in WORKERS:
                    found[one] += run_rates(folder, overrides, one)
            finding = tuned(folder, overrides, given.seconds)
            chosen = int(str(finding["chosen"]))
            if chosen not in found:
                found[chosen] = run_rates(folder, overrides, chosen)
            speeds = {one: statistics.median(rates) for one, rates in found.items()}
            cells = " | ".join(f"{speeds[one]:,.0f}" for one in WORKERS)
            share = speeds[chosen] / max(speeds.values())
            print(f"| {name} | {cells} | {chosen} ({finding['reason']}) | {share:.0%} |", flush=True)


if __name__ == "__main__":
    main()
