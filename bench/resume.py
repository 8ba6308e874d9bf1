"""The time to continue a run, for interruptions early and late in an epoch.

    python bench/resume.py [--rounds 5]

Real packages of one epoch of 4,000 batches (256,000 samples that each cost about 10 µs to read), stopped at
10 % and at 90 % of the epoch, then continued for one step. The table shows the seconds from the start of the
worker's loop (checkpoint load, loader start) to its first step, and the samples read until then. For
comparison: a trainer that reads the skipped batches again (torch's DataLoader, the same data set).
"""

from __future__ import annotations

import argparse
import contextlib
import io
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

import roost
from roost.train import hooks

BATCHES, BATCH_SIZE = 4000, 64


class CountedReads(torch.utils.data.Dataset[Any]):
    """Random samples; counts how many were read."""

    def __init__(self) -> None:
        self.reads = 0

    def __len__(self) -> int:
        return BATCHES * BATCH_SIZE

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        self.reads += 1
        return torch.rand(16), index % 2


class Runner(roost.Runner):
    def build(self) -> None:
        self.net = nn.Linear(16, 2)

    def loss(self, batch: Any) -> Tensor:
        return nn.functional.cross_entropy(self.net(batch[0]), batch[1])


class StopAt(roost.Hook):
    def __init__(self, step: int) -> None:
        self.every = str(step)

    def on_step(self, trainer: roost.Trainer) -> None:
        trainer.request_stop("measured")


def trainer(folder: Path, stop_at: int, dataset: CountedReads) -> roost.Trainer:
    torch.manual_seed(0)
    runner = Runner()
    runner.build()
    plan = roost.BatchPlan(len(dataset), BATCH_SIZE)
    return roost.Trainer(
        runner,
        {"train": roost.Loader(dataset, plan=plan)},
        roost.Stepper(torch.optim.SGD(runner.parameters(), lr=0.01)),
        hooks=[hooks.Save("1ep"), StopAt(stop_at)],
        checkpoints=roost.Checkpoints(folder),
        until="1ep",
    )


def make_interrupted_run(folder: Path, at: int) -> Path:
    """Writes the checkpoint of a run that was stopped after ``at`` batches, without training them."""
    one = trainer(folder, 1, CountedReads())
    with contextlib.redirect_stdout(io.StringIO()):
        one.fit()
    one.progress.batch = one.progress.step = at
    one.save("signal")
    return folder


def continue_run(folder: Path, at: int) -> tuple[float, int]:
    """Continues a run; returns the seconds to its first step, and the samples read until then."""
    dataset = CountedReads()
    one = trainer(folder, at + 1, dataset)
    began = time.perf_counter()
    one.checkpoints = roost.Checkpoints(folder)
    seconds: list[float] = []
    original = one.runner.update
    reads: list[int] = []

    def update(stepper: roost.Stepper, batches: Any) -> Any:
        seconds.append(time.perf_counter() - began)
        reads.append(dataset.reads)
        return original(stepper, batches)

    one.runner.__dict__["update"] = update
    one.fit(checkpoint=max(info.id for info in one.checkpoints.store.lineage() if info.step == at))
    return seconds[0], reads[0]


def skip_by_reading(at: int) -> tuple[float, int]:
    """Reads the skipped batches again; returns the seconds and samples up to the next batch."""
    dataset = CountedReads()
    began = time.perf_counter()
    batches = iter(DataLoader(dataset, batch_size=BATCH_SIZE, shuffle=True))
    for _ in range(at):
        next(batches)
    next(batches)
    return time.perf_counter() - began, dataset.reads


def main(rounds: int) -> None:
    torch.set_num_threads(1)
    print(
        "| cut at | roost: s to first step | samples read | reading the skipped batches: s | samples read |"
    )
    print("|---|---|---|---|---|")
    medians = []
    for percent in (10, 90):
        at = BATCHES * percent // 100
        with tempfile.TemporaryDirectory() as folder:
            interrupted = make_interrupted_run(Path(folder), at)
            ours = [continue_run(interrupted, at) for _ in range(rounds + 1)][1:]
        skipped = skip_by_reading(at)
        medians.append(statistics.median(s for s, _ in ours))
        print(
            f"| {percent} % | {medians[-1]:.4f} | {ours[0][1]} | {skipped[0]:.2f} | {skipped[1]} |",
            flush=True,
        )
    print(f"\n90 % against 10 %: {medians[1] / medians[0]:.2f}×")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    main(parser.parse_args().rounds)
