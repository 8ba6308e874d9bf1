"""The effect of precision, fused optimizers and step modes on a GPU, and the overhead of roost there.

    python bench/gpu.py [--rounds 5]

Prints four tables, or one line on a machine without a GPU. The batches are on the host, in page-locked
memory; roost has everything on that `roost run` sets up. Loops alternate; the first 200 of 1,000 steps are
not timed.

1. A step of a wide model (three layers of 4,096, batch 1,024) and of a tiny one (32-64-10, batch 16, where
   the host takes most of the time), raw and with roost, 32 and bf16, AdamW plain and fused: wall and CPU µs.
2. The parts of a step of the wide model on the device, ms, mean over the run.
3. Host syncs in 799 steps, as torch's sync debug mode reports them: of a raw loop, of a raw loop that reads
   its loss at each step, of roost without rows, and of roost with the eight rows of these steps.
4. What the host does outside of steps: the first copy of a state, which page-locks its memory, beside later
   ones, and the page-locking of a batch by the training process.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from loops.models import Wide
from loops.raw import raw
from loops.roosted import all_on, all_on_fused, train, trainer_of
from loops.task import STEPS, WARM, Clocked, Net, Outcome, Work, loss_of, new_batches, new_net, new_optimizer

from roost.package.results.time_breakdown import STEP_PARTS
from roost.train.checkpointing.staging import Staging

Loop = Callable[[Work, list[Any]], Outcome]
WIDE = Work("adamw", net=Wide, batch_size=1024, device="cuda")
TINY = Work("adamw", net=Net, batch_size=16, device="cuda")
LOOPS: dict[str, tuple[Loop, dict[str, Any]]] = {
    "raw, 32": (raw, {}),
    "roost, 32": (all_on, {}),
    "raw, 32, fused": (functools.partial(raw, fused=True), {}),
    "roost, 32, fused: auto": (all_on_fused, {}),
    "raw, bf16, fused": (functools.partial(raw, fused=True), {"bf16": True}),
    "roost, bf16, fused: auto": (all_on_fused, {"bf16": True}),
}


def pinned_batches(work: Work) -> list[Any]:
    """Returns the batches in page-locked memory, from which a copy to the GPU does not block."""
    return [(x.pin_memory(), y.pin_memory()) for x, y in new_batches(work)]


def print_steps(loops: Mapping[str, tuple[Loop, dict[str, Any]]], rounds: int) -> None:
    """Prints the table of steps."""
    print("| model | loop | wall µs | × raw 32 | CPU µs |\n|---|---|---|---|---|")
    for model, work in (("wide", WIDE), ("tiny", TINY)):
        batches = pinned_batches(work)
        found: dict[str, list[Outcome]] = {loop: [] for loop in loops}
        for number in range(rounds + 1):
            for name, (loop, changes) in loops.items():
                outcome = loop(replace(work, **changes), batches)
                assert outcome.weights.isfinite().all(), f"{name}: the weights are not finite"
                if number:
                    found[name].append(outcome)
        plain = statistics.median(outcome.wall_us for outcome in found["raw, 32"])
        for name, outcomes in found.items():
            wall = [outcome.wall_us for outcome in outcomes]
            middle, cpu = statistics.median(wall), statistics.median(o.cpu_us for o in outcomes)
            spread = f"{middle:.0f} ({min(wall):.0f} … {max(wall):.0f})"
            print(f"| {model} | {name} | {spread} | {middle / plain:.2f} | {cpu:.0f} |", flush=True)


def print_phases() -> None:
    """Prints the table of phase times."""
    print(
        "\n| wide, fused | " + " | ".join(f"{part}, ms" for part in STEP_PARTS) + " | memory of the GPU, MB |"
    )
    print("|---" * (len(STEP_PARTS) + 2) + "|")
    for name, bf16 in (("32", False), ("bf16", True)):
        work = replace(WIDE, bf16=bf16)
        with trainer_of(work, Clocked(work, pinned_batches(work)), fused=True) as trainer:
            trainer.fit()
        span = trainer.stepper.timing.session_span(trainer.progress.step, trainer.progress.samples)
        parts = (f"{span.parts[part] / span.steps * 1000:.3f}" for part in STEP_PARTS)
        print(f"| {name} | {' | '.join(parts)} | {span.gpu_mb:.0f} |", flush=True)


class SyncWarningClock(Clocked):
    """Clocks batches, and lets torch warn of each host sync within the timed steps."""

    def _mark(self) -> None:
        torch.cuda.set_sync_debug_mode("default")  # the sync of the clock is not counted
        super()._mark()
        torch.cuda.set_sync_debug_mode("warn" if len(self._marks) == 3 else "default")


def print_syncs() -> None:
    """Prints the table of host syncs."""
    batches = pinned_batches(TINY)
    loops: dict[str, Callable[[SyncWarningClock], object]] = {
        "raw": functools.partial(_raw, reads=False),
        "raw, loss.item() each step": functools.partial(_raw, reads=True),
        "roost, no rows": functools.partial(train, TINY, everything=False),
        "roost, all on, 8 rows": functools.partial(train, TINY),
    }
    print(f"\n| loop | host syncs in {STEPS - 1 - WARM} steps |\n|---|---|")
    for name, loop in loops.items():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            loop(SyncWarningClock(TINY, batches))
        number = sum("synchronizing" in str(warning.message) for warning in caught)
        print(f"| {name} | {number} |", flush=True)


def print_host_costs() -> None:
    """Prints the table of the host's work outside of steps."""
    state = [torch.zeros(2**26, device="cuda") for _ in range(4)]
    staging, batch = Staging(), torch.zeros(38 * 2**20, dtype=torch.uint8)

    def copy() -> None:
        staging.begin()
        for one in state:
            staging.leaf(one)
        staging.start_gpu_copies()
        staging.wait()

    print("\n| on the host | ms |\n|---|---|")
    for name, work in (
        ("copy of 1 GB, the first", copy),
        ("copy of 1 GB, the second", copy),
        ("pinning 38 MB, the first", batch.pin_memory),
        ("pinning 38 MB, the second", batch.pin_memory),
    ):
        torch.cuda.synchronize()
        started = time.perf_counter()
        work()
        print(f"| {name} | {(time.perf_counter() - started) * 1000:.1f} |", flush=True)


def _raw(clocked: SyncWarningClock, *, reads: bool) -> None:
    net = new_net(TINY)
    optimizer = new_optimizer(TINY, net.parameters())
    for x, y in _on_gpu(clocked):
        optimizer.zero_grad()
        loss = loss_of(net, x, y)
        loss.backward()
        optimizer.step()
        if reads:
            loss.item()


def _on_gpu(clocked: Clocked) -> Iterator[Any]:
    for x, y in clocked:
        yield x.to("cuda", non_blocking=True), y.to("cuda", non_blocking=True)


def main() -> None:
    """Prints all tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("no GPU here: nothing was measured")
        return
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}; median (min … max)\n")
    print_steps(LOOPS, arguments.rounds)
    print_phases()
    print_syncs()
    print_host_costs()


if __name__ == "__main__":
    main()
