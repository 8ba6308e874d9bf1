"""``step_mode: compile`` on the CPU: the cost of a compiled step, and of the first one.

    python bench/compile.py [--rounds 3]

Two models are trained for 1,000 steps each, one thread, batch 64, SGD: chains of pointwise operations, which
a compiler fuses, and a small transformer, whose matrix products it cannot make faster. Four loops alternate:
a raw loop and roost's Trainer with everything on, each eager and compiled. The raw compiled loop applies
`torch.compile` to the loss function, which is the limit. The table shows the median µs CPU per step (min …
max) after 200 steps, and the ratio to raw eager. The weights of roost must equal those of the raw loop bit
for bit; those of a compiled loop must be close to those of the eager one.

A second table shows the wall time of the first step in a new process, in seconds, with torch's kernel cache
empty and full. The benchmark needs a C++ compiler, and takes minutes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from loops.models import Attention, Gates
from loops.raw import raw
from loops.roosted import all_on
from loops.task import Outcome, Work, new_batches

MODELS = {"pointwise chains": Gates, "transformer": Attention}
LOOPS: dict[str, tuple[Callable[[Work, list[Any]], Outcome], bool]] = {
    "raw": (raw, False),
    "roost": (all_on, False),
    "raw, torch.compile": (raw, True),
    "roost, step_mode: compile": (all_on, True),
}
COMPILED = [loop for loop, (_, compiled) in LOOPS.items() if compiled]


def train_once(model: str, loop: str) -> Outcome:
    """Trains one model for 1,000 steps."""
    torch._dynamo.reset()  # each run compiles again, as a new process would; torch keeps few versions
    work = Work(net=MODELS[model], batch_size=64)
    run, compiled = LOOPS[loop]
    return run(replace(work, mode="compile" if compiled else "eager"), new_batches(work))


def print_steps(rounds: int) -> None:
    """Prints the table of steps."""
    print("| model | loop | µs CPU | × raw eager |\n|---|---|---|---|")
    for model in MODELS:
        found: dict[str, list[Outcome]] = {loop: [] for loop in LOOPS}
        for _ in range(rounds):
            for loop in LOOPS:
                found[loop].append(train_once(model, loop))
        _check({loop: outcomes[0].weights for loop, outcomes in found.items()})
        eager = statistics.median(outcome.cpu_us for outcome in found["raw"])
        for loop, outcomes in found.items():
            us = [outcome.cpu_us for outcome in outcomes]
            middle = statistics.median(us)
            spread = f"{middle:.0f} ({min(us):.0f} … {max(us):.0f})"
            print(f"| {model} | {loop} | {spread} | {middle / eager:.2f} |", flush=True)


def _check(weights: dict[str, torch.Tensor]) -> None:
    plain, ours, compiled, ours_compiled = weights.values()
    same = torch.equal(plain, ours) and torch.equal(compiled, ours_compiled)
    assert same, "the weights of roost differ from those of the raw loop"
    torch.testing.assert_close(compiled, plain, rtol=1e-3, atol=1e-3)


def print_first_steps() -> None:
    """Prints the table of first steps."""
    print("\n| model | loop | first step, s | kernels cached |\n|---|---|---|---|")
    for model in MODELS:
        for loop in COMPILED:
            with tempfile.TemporaryDirectory() as kernel_cache:
                cold, cached = (_first_step(model, loop, kernel_cache) for _ in range(2))
            print(f"| {model} | {loop} | {cold:.2f} | {cached:.2f} |", flush=True)


def _first_step(model: str, loop: str, kernel_cache: str) -> float:
    command = [sys.executable, __file__, "--first", model, loop]
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": kernel_cache}
    return float(subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE).stdout)


def main() -> None:
    """Prints both tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--first", nargs=2, metavar=("MODEL", "LOOP"), help="print the seconds of one first step"
    )
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.first:
        print(train_once(*arguments.first).first_s)
        return
    if not (os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")):
        print("no C++ compiler here: torch.compile cannot make kernels for this CPU, nothing was measured")
        return
    print(f"torch {torch.__version__}, one thread, {arguments.rounds} rounds; median (min … max)\n")
    with tempfile.TemporaryDirectory() as kernel_cache:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = kernel_cache
        print_steps(arguments.rounds)
    print_first_steps()


if __name__ == "__main__":
    main()
