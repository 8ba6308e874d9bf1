"""The cost per step of each of roost's hooks, compared with a raw loop and the bare Trainer.

    python bench/hooks.py [--rounds 9]

Two models, prebuilt batches, AdamW, one thread: a tiny one (32-64-10, batch 16) and a middle one (three
layers of 256, batch 64). Each round runs all loops one after another, in a rotating order. Figures are
medians over rounds of CPU time per step (of this process, with its writing threads); ratios are of medians.
The first 200 of 1,000 steps are not timed. A loop that does not end with the weights of the raw loop, bit for
bit, is an error: hooks that observe must not change what is trained.

- *bare*: the Trainer without hooks;
- *roost run*: what `roost run` sets up: a row every 100 steps, progress file, console, saves, validation,
  best, early stop;
- *with ...*: that, and one more: an average of the weights at each step, norms of gradients and weights every
  100 steps, pictures every 500 steps, a schedule moved at each step (its factor is 1) with its rate in the
  rows;
- *everything*: all of them.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import statistics
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from loops import roosted
from loops.models import Wide
from loops.raw import raw
from loops.table import require_equal, spread
from loops.task import Clocked, Net, Outcome, Work, new_batches, new_optimizer
from torch.utils.data import TensorDataset

import roost
from roost.package.live_progress import ProgressFile
from roost.train import hooks
from roost.train.checkpointing.checkpoints import Checkpoints

Loop = Callable[[Work, list[Any]], Outcome]
WORKS = {
    "tiny": Work("adamw", net=Net, batch_size=16),
    "middle": Work("adamw", net=partial(Wide, 256), batch_size=64),
}


class Runner(roosted.Runner):
    """The model of all loops, with a picture."""

    def visualize(self, batch: Any) -> Mapping[str, roost.Media]:
        return {"logits": roost.Media("histogram", self.net(batch[0]))}


def average(folder: Path) -> list[roost.Hook]:
    """Averages the weights, at each step."""
    return [hooks.Averaging("ema", decay=0.999)]


def statistics_(folder: Path) -> list[roost.Hook]:
    """Writes norms of gradients and weights into the rows."""
    return [hooks.Statistics(100)]


def pictures(folder: Path) -> list[roost.Hook]:
    """Stores a histogram."""
    return [hooks.Visualize(folder / "media", 500)]


def schedule(folder: Path) -> list[roost.Hook]:
    """Moves the scheduler, and records the learning rate."""
    return [hooks.Schedule()]


EXTRAS = {"average": average, "statistics": statistics_, "pictures": pictures, "schedule": schedule}
LOOPS: dict[str, tuple[str, ...]] = {
    "roost run": (),
    **{f"with {name}": (name,) for name in EXTRAS},
    "everything": tuple(EXTRAS),
}


def train_with(extras: tuple[str, ...], work: Work, batches: list[Any]) -> Outcome:
    """Trains one epoch with the hooks of `roost run` and those of ``extras``."""
    clocked, runner = Clocked(work, batches), Runner(work)
    optimizer = new_optimizer(work, runner.parameters())
    scheduler = None
    if "schedule" in extras:
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    plan = roost.BatchPlan(work.batch_size, work.batch_size, shuffle=False)
    loaders = {
        "train": roosted.PrebuiltLoader(work, clocked),
        "valid": roost.Loader(TensorDataset(*clocked.batches[0]), plan=plan),
    }
    with tempfile.TemporaryDirectory() as name, contextlib.redirect_stdout(io.StringIO()):
        folder = Path(name)
        trainer = roost.Trainer(
            runner,
            loaders,
            roost.Stepper(roost.Optim(optimizer, scheduler)),
            hooks=[
                *(
                    hook
                    for hook in roosted.hooks_of_a_run(folder)
                    if "pictures" not in extras or not _is_visualize(hook)
                ),
                *(hook for extra in extras for hook in EXTRAS[extra](folder)),
            ],
            checkpoints=Checkpoints(folder / "checkpoints"),
            board=ProgressFile(folder / "progress"),
            until="1ep",
        )
        trainer.fit()
    return clocked.outcome(runner)


def _is_visualize(hook: roost.Hook) -> bool:
    return isinstance(hook, hooks.Visualize)


def measure(work: Work, rounds: int) -> dict[str, list[Outcome]]:
    """Runs every loop, ``rounds`` times after a first time that is not counted.

    Raises:
        AssertionError: A loop did not train, or its weights differ from those of the raw loop.
    """
    loops: dict[str, Loop] = {"raw loop": raw, "bare": roosted.bare}
    loops |= {name: partial(train_with, extras) for name, extras in LOOPS.items()}
    names, batches = list(loops), new_batches(work)
    found: dict[str, list[Outcome]] = {name: [] for name in names}
    for number in range(rounds + 1):
        shift = number % len(names)
        outcomes = {name: loops[name](work, batches) for name in [*names[shift:], *names[:shift]]}
        for name, outcome in outcomes.items():
            require_equal(name, work, outcomes["raw loop"].weights, outcome.weights)
            if number:
                found[name].append(outcome)
    return found


def main() -> None:
    """Prints a table for each model."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, one thread, {rounds} rounds; µs CPU per step: median (min … max)")
    for name, work in WORKS.items():
        print(
            f"\n| {name} model | µs | over raw, µs | ÷ raw | ÷ bare | wall ÷ raw |\n|---|---|---|---|---|---|"
        )
        found = measure(work, rounds)
        cpu = {loop: statistics.median(run.cpu_us for run in outcomes) for loop, outcomes in found.items()}
        wall = {loop: statistics.median(run.wall_us for run in outcomes) for loop, outcomes in found.items()}
        for loop, outcomes in found.items():
            over, of_raw = cpu[loop] - cpu["raw loop"], cpu[loop] / cpu["raw loop"]
            of_bare, of_wall = cpu[loop] / cpu["bare"], wall[loop] / wall["raw loop"]
            shown = spread([outcome.cpu_us for outcome in outcomes])
            print(
                f"| {loop} | {shown} | {over:.1f} | {of_raw:.3f} | {of_bare:.3f} | {of_wall:.3f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
