"""Two ranks on the CPU by gloo: time per step and time to the first step of roost, compared with torch's own.

    python bench/ddp.py [--rounds 7] [--starts 5]

1. A step: roost's loop compared with the usual loop with DistributedDataParallel, for three models on
   prebuilt batches, AdamW, one thread per rank. roost's Trainer has everything on that `roost run` sets up
   (a row every 100 steps, progress file, console, saves, validation, best, early stop). *reduced* is forward,
   backward and the sum of the gradients alone, by roost's GradientReducer and by DistributedDataParallel.
   Each round runs all four, in a rotating order. Times are those of rank 0; the first 200 of 1,000 steps are
   not timed. The two loops must end with the same weights.
2. The start: from the command to the first step, `roost run` with two ranks compared with torchrun and a
   script.

Figures are medians over rounds; ratios are of medians.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from loops import roosted
from loops.models import Wide
from loops.table import require_equal, spread
from loops.task import Clocked, Net, Outcome, Work, loss_of, new_batches, new_net, new_optimizer
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset

import roost
from roost.package import live_progress
from roost.package.live_progress import ProgressFile
from roost.train.checkpointing.checkpoints import Checkpoints
from roost.train.distributed import ranks as rank_group
from roost.train.distributed.ranks import Ranks
from roost.train.distributed.reducer import GradientReducer

Loop = Callable[[Ranks, Work, list[Any]], Outcome]
WORLD = 2
MAX_DIFFERENCE = 1e-4
"""Allowed difference of a weight after all steps: the two loops sum the gradients in different orders."""
TEMPLATE = Path(roost.__file__).parent / "templates" / "clean"

SCRIPT = """
import os, sys, torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(16, 1))
optimizer = torch.optim.AdamW(model.parameters())
model(torch.randn(8, 16)).mean().backward()
optimizer.step()
if dist.get_rank() == 0:
    open(sys.argv[1], "w").close()
dist.destroy_process_group()
"""


class Deep(nn.Module):
    """A model of 200 small parameters, where the cost per parameter dominates."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(32, 32), nn.Linear(32, 10)
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(98))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for layer in self.layers:
            x = x + layer(x).relu() * 0.1
        return self.last(x)


WORKS = {
    "tiny: 32-64-10, batch 2 x 16": Work("adamw", net=Net, batch_size=16),
    "middle: three layers of 256, batch 2 x 64": Work("adamw", net=partial(Wide, 256), batch_size=64),
    "deep: 100 layers of 32, batch 2 x 16": Work("adamw", net=Deep, batch_size=16),
}


# --- loops ------------------------------------------------------------------------------------------------


def plain_ddp(ranks: Ranks, work: Work, batches: list[Any]) -> Outcome:
    """Trains with DistributedDataParallel, as in torch's tutorial."""
    net, clocked = new_net(work), Clocked(work, batches)
    model = DistributedDataParallel(net)
    optimizer = new_optimizer(work, model.parameters())
    for x, y in clocked:
        optimizer.zero_grad()
        loss = loss_of(model, x, y)
        loss.backward()
        optimizer.step()
    return clocked.outcome(net)


def roost_ddp(ranks: Ranks, work: Work, batches: list[Any]) -> Outcome:
    """Trains with roost, everything on."""
    clocked, runner = Clocked(work, batches), roosted.Runner(work)
    plan = roost.BatchPlan(work.batch_size, work.batch_size, shuffle=False)
    valid = roost.Loader(TensorDataset(*clocked.batches[0]), plan=plan)
    with tempfile.TemporaryDirectory() as name, contextlib.redirect_stdout(io.StringIO()):
        folder = Path(name)
        trainer = roost.Trainer(
            runner,
            {"train": roosted.PrebuiltLoader(work, clocked), "valid": valid},
            roost.Stepper(new_optimizer(work, runner.parameters()), ranks=ranks),
            hooks=roosted.hooks_of_a_run(folder),
            checkpoints=Checkpoints(folder / "checkpoints", ranks=ranks),
            board=ProgressFile(folder / "progress") if ranks.is_main else None,
            until="1ep",
            ranks=ranks,
        )
        trainer.fit()
        ranks.control.barrier("the bench")  # rank 0 removes its folder, which has the files of all ranks
    return clocked.outcome(runner)


def reduce_with_ddp(ranks: Ranks, work: Work, batches: list[Any]) -> Outcome:
    """Computes and reduces gradients, by DistributedDataParallel."""
    net, clocked = new_net(work), Clocked(work, batches)
    model = DistributedDataParallel(net)
    for x, y in clocked:
        model.zero_grad()
        loss_of(model, x, y).backward()
    return clocked.outcome(net)


def reduce_with_roost(ranks: Ranks, work: Work, batches: list[Any]) -> Outcome:
    """Computes and reduces gradients, by roost's GradientReducer."""
    net, clocked = new_net(work), Clocked(work, batches)
    reducer = GradientReducer(list(net.parameters()))
    for x, y in clocked:
        net.zero_grad()
        reducer.begin()
        loss_of(net, x, y).backward()
        reducer.finish()
    return clocked.outcome(net)


LOOPS: dict[str, Loop] = {
    "DDP by hand": plain_ddp,
    "roost": roost_ddp,
    "reduced: DDP": reduce_with_ddp,
    "reduced: roost": reduce_with_roost,
}


# --- a step -----------------------------------------------------------------------------------------------


def measure(work: Work, rounds: int) -> dict[str, list[float]]:
    """Returns the µs per step of every loop on rank 0, for each round after a first one that is not counted.

    Raises:
        AssertionError: A rank has failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        children = [_fork(rank, work, rounds, Path(folder)) for rank in range(WORLD)]
        assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * WORLD, "a rank has failed"
        found: dict[str, list[float]] = json.loads((Path(folder) / "found.json").read_text())
    return found


def _fork(rank: int, work: Work, rounds: int, folder: Path) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        store = dist.FileStore(str(folder / "store"), WORLD)
        ranks = rank_group.join(store, rank, WORLD, local_rank=rank)
        found = _rounds(ranks, work, rounds)
        if ranks.is_main:
            (folder / "found.json").write_text(json.dumps(found))
        code = 0
    finally:
        sys.stderr.flush()
        os._exit(code)


def _rounds(ranks: Ranks, work: Work, rounds: int) -> dict[str, list[float]]:
    torch.set_num_threads(1)
    every = new_batches(work)
    batches = every[ranks.rank :] + every[: ranks.rank]  # the ranks have different batches at the same time
    found: dict[str, list[float]] = {name: [] for name in LOOPS}
    for number in range(rounds + 1):
        weights = {}
        for name in itertools.islice(itertools.cycle(LOOPS), number % len(LOOPS), number % len(LOOPS) + 4):
            ranks.control.barrier("the bench")
            outcome = LOOPS[name](ranks, work, batches)
            weights[name] = outcome.weights
            if number:
                found[name].append(outcome.wall_us)
        require_equal("roost", work, weights["DDP by hand"], weights["roost"], within=MAX_DIFFERENCE)
    return found


def print_steps(rounds: int) -> None:
    """Prints the table of steps, for all models."""
    print(f"torch {torch.__version__}, {WORLD} ranks of one thread, {rounds} rounds; µs wall per step\n")
    print("| model | DDP by hand | roost | ratio | reduced: DDP | reduced: roost | ratio |")
    print("|---|---|---|---|---|---|---|")
    for name, work in WORKS.items():
        wall = measure(work, rounds)
        middle = {loop: statistics.median(values) for loop, values in wall.items()}
        print(
            f"| {name} | {spread(wall['DDP by hand'])} | {spread(wall['roost'])} "
            f"| {middle['roost'] / middle['DDP by hand']:.2f} | {spread(wall['reduced: DDP'])} "
            f"| {spread(wall['reduced: roost'])} | {middle['reduced: roost'] / middle['reduced: DDP']:.2f} |",
            flush=True,
        )


# --- the start --------------------------------------------------------------------------------------------


def seconds_until(command: Sequence[str], has_stepped: Callable[[], bool], folder: Path) -> float:
    """Returns the seconds from the command to its first step, and waits for its end."""
    began = time.perf_counter()
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    while not has_stepped():
        assert process.poll() in (None, 0), f"{command} has failed"
        time.sleep(0.002)
    seconds = time.perf_counter() - began
    assert process.wait() == 0
    return seconds


def start_roost(folder: Path, number: int) -> float:
    """Returns the seconds to the first step of `roost run`."""
    name = f"run{number}"
    options = ["--devices", str(WORLD), "--name", name, f"save_root={folder}", "max_steps=1"]
    command = [sys.executable, "-m", "roost.cli", "run", str(TEMPLATE / "config.yaml"), "-CPU", "-DDP"]

    def has_stepped() -> bool:
        progress = live_progress.read(folder / name / "progress")
        return progress is not None and progress.step >= 1

    return seconds_until([*command, *options], has_stepped, folder)


def start_torchrun(folder: Path, number: int) -> float:
    """Returns the seconds to the first step of a script under torchrun."""
    stepped, script = folder / f"stepped{number}", folder / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={WORLD}"]
    return seconds_until([*command, str(script), str(stepped)], stepped.exists, folder)


def print_starts(rounds: int) -> None:
    """Prints the table of starts."""
    starts = {"torchrun": start_torchrun, "roost run": start_roost}
    found: dict[str, list[float]] = {name: [] for name in starts}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds + 1):
            for name, start in starts.items():
                seconds = start(Path(folder), number)
                if number:
                    found[name].append(seconds)
    print("\n| until the first step | s | ratio |\n|---|---|---|")
    for name, values in found.items():
        ratio = statistics.median(values) / statistics.median(found["torchrun"])
        cell = f"{statistics.median(values):.2f} ({min(values):.2f} … {max(values):.2f})"
        print(f"| {name} | {cell} | {ratio:.2f} |")


def main() -> None:
    """Prints both tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--starts", type=int, default=5)
    arguments = parser.parse_args()
    print_steps(arguments.rounds)
    print_starts(arguments.starts)


if __name__ == "__main__":
    main()
