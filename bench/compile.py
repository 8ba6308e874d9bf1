"""``step_mode: compile`` on the CPU: what a compiled step costs, and what the first one does.

    python bench/compile.py [--rounds 3]

Two models of 1,000 steps each, one thread, batch 64, SGD: chains of pointwise operations, which a compiler
joins, and a small transformer, whose matrix products it cannot make faster. Four loops alternate: raw and
roost's Trainer with everything on, each eager and compiled; the raw compiled one is `torch.compile` of the
loss function by hand, the limit. Quoted: median µs CPU per step (min … max) after 200 steps, and the ratio to
raw eager. roost must end with the bits of the raw loop, a compiled loop near the weights of the eager one.

Then the first step, s of wall time in a new process, with torch's store of kernels empty and full.
All needs a C++ compiler, and takes minutes.
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


def once(model: str, loop: str) -> Outcome:
    """One run of 1,000 steps."""
    torch._dynamo.reset()  # each run compiles anew, as a new process would; torch keeps few versions
    work = Work(net=MODELS[model], batch_size=64)
    run, compiled = LOOPS[loop]
    return run(replace(work, mode="compile" if compiled else "eager"), new_batches(work))


def steady(rounds: int) -> None:
    """Prints the table of steps."""
    print("| model | loop | µs CPU | × raw eager |\n|---|---|---|---|")
    for model in MODELS:
        found: dict[str, list[Outcome]] = {loop: [] for loop in LOOPS}
        for _ in range(rounds):
            for loop in LOOPS:
                found[loop].append(once(model, loop))
        _check({loop: outcomes[0].weights for loop, outcomes in found.items()})
        eager = statistics.median(outcome.cpu_us for outcome in found["raw"])
        for loop, outcomes in found.items():
            us = [outcome.cpu_us for outcome in outcomes]
            middle = statistics.median(us)
            spread = f"{middle:.0f} ({min(us):.0f} … {max(us):.0f})"
            print(f"| {model} | {loop} | {spread} | {middle / eager:.2f} |", flush=True)


def _check(weights: dict[str, torch.Tensor]) -> None:
    plain, ours, compiled, ours_compiled = weights.values()
    assert torch.equal(plain, ours) and torch.equal(compiled, ours_compiled), "roost's bits are not raw's"
    torch.testing.assert_close(compiled, plain, rtol=1e-3, atol=1e-3)


def first_steps() -> None:
    """Prints the table of first steps."""
    print("\n| model | loop | first step, s | kernels stored |\n|---|---|---|---|")
    for model in MODELS:
        for loop in COMPILED:
            with tempfile.TemporaryDirectory() as store:
                cold, stored = (_first_step(model, loop, store) for _ in range(2))
            print(f"| {model} | {loop} | {cold:.2f} | {stored:.2f} |", flush=True)


def _first_step(model: str, loop: str, store: str) -> float:
    command = [sys.executable, __file__, "--first", model, loop]
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": store}
    return float(subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE).stdout)


def main() -> None:
    """Prints both tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--first", nargs=2, metavar=("MODEL", "LOOP"), help="print one first step's seconds")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.first:
        print(once(*given.first).first_s)
        return
    if not (os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")):
        print("no C++ compiler here: torch.compile cannot make kernels for this CPU, nothing was measured")
        return
    print(f"torch {torch.__version__}, one thread, {given.rounds} rounds; median (min … max)\n")
    with tempfile.TemporaryDirectory() as store:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = store
        steady(given.rounds)
    first_steps()


if __name__ == "__main__":
    main()
