"""The cost of the loop of DLNest's contract per step, compared with a bare loop over the same Runner.

    python bench/dlnest.py [--rounds 9]

Model 32-64-10, batch 16, SGD, prebuilt batches, one thread; ``runOneStep`` appends the loss to the log. The
bare loop is ``for iter, data in enumerate(loader): runner.runOneStep(data, log, iter, 0)``. The loop has
everything on that `roost run` sets up: rows (ten an epoch), the progress file of the live bar, checkpoints;
the project's LifeCycle defines what the example of DLNest's README defines. Both must end with the same
weights, bit for bit.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from loops.table import require_equal, spread
from loops.task import Clocked, Outcome, Work, new_batches

from roost.config import objects
from roost.config.dlnest.dlnest_settings import parse_dlnest_settings
from roost.package.live_progress import ProgressFile
from roost.package.package import PackageFolder
from roost.project.dlnest.project_loading import DlnestProject, load_project
from roost.project.dlnest.training_loop import TrainingLoop
from roost.train.checkpointing.checkpoints import Checkpoints

LIFE_CYCLE = """
from DLNest.Common.LifeCycleBase import LifeCycleBase

class LifeCycle(LifeCycleBase):
    def needVisualize(self, epoch, iter, logdict, args):
        return False

    def needValidation(self, epoch, logdict, args):
        return False

    def commandLineOutput(self, epoch, logdict, args):
        print("Epoch #" + str(epoch) + " finished!")

    def needSaveModel(self, epoch, logdict, args):
        return True

    def holdThisCheckpoint(self, epoch, logdict, args):
        return False

    def needContinueTrain(self, epoch, logdict, args):
        return False
"""
DATASET = """
from DLNest.Common.DatasetBase import DatasetBase

class Dataset(DatasetBase):
    def init(self, args):
        return {}, [], []
"""
RUNNER = """
import torch
from loops.task import Work, loss_of, new_net, new_optimizer
from DLNest.Common.RunnerBaseTorch import RunnerBaseTorch

class Runner(RunnerBaseTorch):
    def init(self, args, datasetInfo=None):
        self.model = new_net(Work())

    def initOptimizer(self):
        self.optimizer = new_optimizer(Work(), self.model.parameters())

    def initLog(self):
        return {"loss": []}

    def runOneStep(self, data, log, iter, epoch):
        x, y = data
        self.optimizer.zero_grad()
        loss = loss_of(self.model, x, y)
        loss.backward()
        self.optimizer.step()
        log["loss"].append(loss.item())
"""
FILES = {"LifeCycle.py": LIFE_CYCLE, "Dataset.py": DATASET, "Runner.py": RUNNER}
VALUES = {
    f"{prefix}_{end}": value
    for prefix, name in (("life_cycle", "LifeCycle"), ("dataset", "Dataset"), ("runner", "Runner"))
    for end, value in (("name", name), ("file_path", f"./{name}.py"))
}


def load(package: PackageFolder, batches: Clocked) -> DlnestProject:
    """Returns the project of a package, with the batches as its training loader."""
    project = load_project(package, parse_dlnest_settings(VALUES), device="cpu")
    assert project.build()
    project.train_loader = batches
    return project


def bare(package: PackageFolder, batches: list[Any]) -> Outcome:
    """Runs the bare loop."""
    clocked = Clocked(Work(), batches)
    runner, log = load(package, clocked).runner, {"loss": list[float]()}
    for number, data in enumerate(clocked):
        runner.runOneStep(data, log, number, 0)
    return clocked.outcome(runner.model)


def looped(package: PackageFolder, batches: list[Any], number: int) -> Outcome:
    """Runs the loop of roost."""
    clocked = Clocked(Work(), batches)
    project = load(package, clocked)
    loop = TrainingLoop(
        project,
        checkpoints=Checkpoints(package, session=number, asynchronous=False),
        save_every="30min",
        records=package.path / "records",
        session=number,
        board=ProgressFile(package.progress),
    )
    assert loop.run() == "finished" and len(project.log["loss"]) == len(batches)
    return clocked.outcome(project.runner.model)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    sys.path.insert(0, str(Path(__file__).parent))
    batches = new_batches(Work())
    pairs: list[tuple[Outcome, Outcome]] = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds + 1):
            package = PackageFolder.create(Path(folder), values=VALUES, request={"kind": "dlnest"})
            for name, text in FILES.items():
                (package.path / name).write_text(text)
            os.chdir(package.path)
            with contextlib.redirect_stdout(io.StringIO()):
                pairs.append((bare(package, batches), looped(package, batches, number)))
            objects.unload_project(package.path)
            os.chdir(folder)
        os.chdir("/")
    pairs = pairs[1:]
    for plain, other in pairs:
        require_equal("the loop", Work(), plain.weights, other.weights)
    plain_us, us = [a.cpu_us for a, _ in pairs], [b.cpu_us for _, b in pairs]
    ratio = statistics.median(us) / statistics.median(plain_us)
    wall = statistics.median(b.wall_us for _, b in pairs) / statistics.median(a.wall_us for a, _ in pairs)
    print(f"torch {torch.__version__}, one thread, {rounds} rounds; µs CPU per step: median (min … max)\n")
    print("| bare loop | this loop | ratio CPU | ratio wall |\n|---|---|---|---|")
    print(f"| {spread(plain_us)} | {spread(us)} | {ratio:.3f} | {wall:.3f} |")


if __name__ == "__main__":
    main()
