"""The cost of a mirror per step in CPU and wall time, and how long the end of a run waits for it.

    python bench/mirrors.py [--rounds 7]

Model 32-64-10, batch 16, prebuilt batches, AdamW, one thread; a row every 10 steps, and every step. A mirror
is a separate process that reads the records, so the training thread does nothing for it; the wall time grows
because the cores are shared, most of all while its library is imported. Each round runs all cases, in a
rotating order; figures are medians over rounds of 1,000 steps, of which the first 200 are not timed, and
their ratios to *none*, the same run without a mirror. *end* is the time from the last step until the mirror
has copied everything and has ended; as these runs are shorter than the imports, it includes them. W&B is
offline, MLflow is a file of the package. Weights that differ from those of the run without mirrors are an
error.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch
from loops import roosted
from loops.table import require_equal
from loops.task import Clocked, Outcome, Work, new_batches, new_optimizer

import roost
from roost.config.sections.mirrors import CsvSettings, MlflowSettings, TensorBoardSettings, WandbSettings
from roost.train import hooks
from roost.train.trainer import Trainer

WORK = Work("adamw")
CASES: dict[str, dict[str, Any]] = {
    "none": {},
    "csv": {"csv": CsvSettings()},
    "tensorboard": {"tensorboard": TensorBoardSettings()},
    "wandb, offline": {"wandb": WandbSettings()},
    "mlflow, a file": {"mlflow": MlflowSettings()},
}


class TimedMirrors(hooks.Mirrors):
    """Records how long `on_stop` takes."""

    end_seconds = 0.0

    def on_stop(self, trainer: Trainer, reason: str) -> None:
        begin = time.perf_counter()
        super().on_stop(trainer, reason)
        self.end_seconds = time.perf_counter() - begin


class Measurement(NamedTuple):
    """The measurement of one run."""

    outcome: Outcome
    end_seconds: float


def run(mirrors: dict[str, Any], every: int, batches: list[Any]) -> Measurement:
    clocked, runner = Clocked(WORK, batches), roosted.Runner(WORK)
    stepper = roost.Stepper(roost.Optim(new_optimizer(WORK, runner.parameters())))
    loaders = {"train": roosted.PrebuiltLoader(WORK, clocked)}
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        mirror = TimedMirrors(folder, mirrors, max_wait_seconds=120.0)
        used = [hooks.Records(Path(folder) / "records", every), mirror]
        roost.Trainer(runner, loaders, stepper, hooks=used, until="1ep").fit()
    return Measurement(clocked.outcome(runner), mirror.end_seconds)


def measure(every: int, rounds: int, batches: list[Any]) -> dict[str, list[Measurement]]:
    names, found = list(CASES), {name: list[Measurement]() for name in CASES}
    for number in range(-1, rounds):  # the first one warms up
        turn = max(number, 0) % len(names)
        for name in [*names[turn:], *names[:turn]]:
            one = run(CASES[name], every, batches)
            if number >= 0:
                found[name].append(one)
    expected = found["none"][0].outcome
    for name, several in found.items():
        for one in several:
            require_equal(name, WORK, expected.weights, one.outcome.weights)
    return found


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    batches = new_batches(WORK)
    print(f"{'mirror':16} {'a row':>10}  {'µs CPU':>7} {'×':>5}  {'µs wall':>8} {'×':>5}  {'end, s':>7}")
    for every in (10, 1):
        found = measure(every, rounds, batches)
        cpu, wall, ends = (
            {name: statistics.median(of(one) for one in several) for name, several in found.items()}
            for of in (
                lambda one: one.outcome.cpu_us,
                lambda one: one.outcome.wall_us,
                lambda one: one.end_seconds,
            )
        )
        for name in CASES:
            shown = f"{cpu[name]:7.0f} {cpu[name] / cpu['none']:5.2f}  {wall[name]:8.0f}"
            shown += f" {wall[name] / wall['none']:5.2f}  {ends[name]:7.2f}"
            print(f"{name:16} {f'{every} steps':>10}  {shown}", flush=True)


if __name__ == "__main__":
    main()
