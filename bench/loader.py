"""The cost of a batch, with and without loader workers: roost, torch, torchdata.

    python bench/loader.py [--rounds 3] [--quick] [--only WORD ...]

Measures roost's Loader, torch's DataLoader and, if torchdata is installed, its StatefulDataLoader, with 0, 1
and 2 workers and otherwise their defaults; roost also with ``num_workers: auto`` (with the number it chose).
Two limits: a bare ring (one process copies a tensor into 4 slots of shared memory, with one byte on a pipe in
each direction; the batch is a view), and one gather from a tensor. One thread; the loaders alternate; figures
are the median over rounds of the mean in the steady part of a pass (min … max).

1. Batches, in three groups: µs of wall time, the ratio to the row with 1.00, and the number of workers that
   auto chose. A second table gives the CPU time of the consumer's process, or its waiting time, µs per batch.
   queue: an existing tensor is handed over; a worker copies it once, without workers there is no copy.
   light: 64 samples of 32 floats, shuffled, of a TensorDataset or from ``__getitem__`` (roost seeds each one,
   unless the data set says that it draws nothing), and 64 samples of 64 KiB; torch's default collate.
   heavy: 8 samples of 2 ms, of CPU time or of sleep, with and without a consumer that works 5 ms per batch.
2. Start: ms to the first batch of a pass of 8, and from its last batch to the first batch of the next pass.
3. Peak memory with two workers and batches of 4 MiB, each loader in a separate process.

Goals: with workers at most 1.5 times the bare ring (20 µs at 4 KiB, 0.15 ms at 4 MiB), and auto chooses no
worker for light samples.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence

import torch
from loaders import candidates, cases, clock, memory
from loaders.cases import Case

Measurements = dict[str, dict[str, list[clock.Steady]]]
"""Measurements by loader, then by case."""
GROUPS = {
    "queue": ("limit: bare ring", "CPU", "cpu_us"),
    "light": ("DataLoader, 0 workers", "CPU", "cpu_us"),
    "heavy": ("DataLoader, 0 workers", "waited", "waited_us"),
}
"""The loader that is the reference of a group; title and field of the second table."""


def batches(group: str, chosen: Sequence[Case], rounds: int, seconds: float) -> None:
    """Prints the two tables of a group."""
    found: Measurements = {}
    for case in chosen:
        for _ in range(rounds):
            for candidate in candidates.for_case(case):
                values = found.setdefault(candidate.name, {}).setdefault(case.name, [])
                values.append(clock.steady(case, candidate, seconds))
    base, title, field = GROUPS[group]
    names = [case.name for case in chosen]

    def wall(candidate: str, case: str) -> str:
        values = found[candidate][case]
        ratio = _middle(values, "us") / _middle(found[base][case], "us")
        took = " or ".join(sorted({str(value.num_workers) for value in values}))
        chosen = f", chose {took}" if candidate.endswith("auto") else ""
        return f"{_spread([value.us for value in values])} × {ratio:.2f}{chosen}"

    _table(f"{group}, µs per batch", names, found, wall)
    _table(
        f"{group}: {title}",
        names,
        found,
        lambda candidate, case: _number(_middle(found[candidate][case], field)),
    )


def _middle(values: Sequence[clock.Steady], field: str) -> float:
    return statistics.median(getattr(value, field) for value in values)


def _table(title: str, names: Sequence[str], found: Measurements, cell: Callable[[str, str], str]) -> None:
    print(f"| {title} | {' | '.join(names)} |\n|---{'|---' * len(names)}|")
    for candidate, of_cases in found.items():
        cells = (cell(candidate, name) if name in of_cases else "" for name in names)
        print(f"| {candidate} | {' | '.join(cells)} |")
    print(flush=True)


def starts(rounds: int) -> None:
    """Prints the table of first batches."""
    case = Case("first", cases.Rows(64 * 8), 64, (64, cases.WIDTH), shuffle=True)
    compared = candidates.for_start()
    found: dict[str, list[clock.Start]] = {candidate.name: [] for candidate in compared}
    for _ in range(rounds):
        for candidate in compared:
            found[candidate.name].append(clock.start(case, candidate))
    print("| start | first batch, ms | first of a second pass, ms |\n|---|---|---|")
    for name, values in found.items():
        first, second = [value.first_ms for value in values], [value.second_pass_ms for value in values]
        print(f"| {name} | {_spread(first)} | {_spread(second)} |", flush=True)


def memories() -> None:
    """Prints the table of memory."""
    print("\n| 4 MiB, two workers | private, MB | shared, MB |\n|---|---|---|")
    for candidate in candidates.with_two_workers():
        command = [sys.executable, __file__, "--memory", candidate.name]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
        found = memory.Memory(*json.loads(output))
        print(f"| {candidate.name} | {found.own_mb:.1f} | {found.shared_mb:.1f} |", flush=True)


def _memory(name: str) -> None:
    (case,) = cases.queues(4096)
    candidate = next(candidate for candidate in candidates.with_two_workers() if candidate.name == name)
    print(json.dumps(memory.peak(case, candidate)))


def _spread(values: Sequence[float]) -> str:
    return f"{_number(statistics.median(values))} ({_number(min(values))} … {_number(max(values))})"


def _number(value: float) -> str:
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}" if abs(value) < 100 else f"{value:,.0f}"


def main() -> None:
    """Prints all tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, help="default: 3; with --quick 1")
    parser.add_argument("--quick", action="store_true", help="fewer cases, shorter measurements")
    parser.add_argument(
        "--only",
        nargs="+",
        metavar="WORD",
        help="only cases whose name has a WORD, such as 'queue 4 KiB'; or: start, memory",
    )
    parser.add_argument("--memory", metavar="WAY", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.memory:
        _memory(arguments.memory)
        return
    rounds, seconds = arguments.rounds or (1 if arguments.quick else 3), 0.05 if arguments.quick else 0.25

    def is_selected(name: str) -> bool:
        return any(word in name for word in arguments.only) if arguments.only else True

    print(f"torch {torch.__version__}, one thread, {rounds} rounds; median (min … max)")
    print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}: CPU work needs idle cores")
    if not candidates.has_torchdata():
        print("torchdata is not installed: no rows of its StatefulDataLoader")
    print()
    for group, members in (cases.few() if arguments.quick else cases.every()).items():
        if chosen := [case for case in members if is_selected(f"{group} {case.name}")]:
            batches(group, chosen, rounds, seconds)
    if is_selected("start"):
        starts(rounds)
    if is_selected("memory"):
        memories()


if __name__ == "__main__":
    main()
