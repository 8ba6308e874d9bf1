"""What a batch costs, from loader workers and without them, side by side.

    python bench/loader.py [--rounds 3] [--quick] [--only WORD ...]

roost's Loader, torch's DataLoader and, where torchdata is installed, its StatefulDataLoader, with 0, 1 and 2
workers and otherwise their defaults; roost also with ``num_workers: auto`` (and how many it took). Two
limits: a bare ring (one process that copies a tensor into 4 slots of shared memory, one byte on a pipe each
way, the batch is a view), and one gather from a tensor. One thread; the ways alternate; quoted is the median
over rounds of the mean in the steady part of a pass (min … max).

1. Batches, in three groups; µs of wall time, × the row that says 1.00, and what auto took. Under it the CPU
   time of the consumer's process, or how long it waited, µs a batch.
   queue: a ready tensor is handed over; a worker copies it once, without workers nobody does.
   light: 64 samples of 32 floats, shuffled, of a TensorDataset or from ``__getitem__`` (roost seeds each one,
   unless the set says that it draws nothing), and 64 samples of 64 KiB; torch's default collate.
   heavy: 8 samples of 2 ms, of CPU time or of sleep, with and without a consumer that works 5 ms a batch.
2. Start: ms to the first batch of a pass of 8, and from its last batch to the first one of the next pass.
3. Memory with two workers and batches of 4 MiB, each way in a process of its own: the most seen.

Goals: through workers at most 1.5 times the bare ring (20 µs at 4 KiB, 0.15 ms at 4 MiB), and auto takes none
for light samples.
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
from loaders import cases, clock, memory, ways
from loaders.cases import Case

Found = dict[str, dict[str, list[clock.Steady]]]
"""By way, and by case."""
OF_A_GROUP = {
    "queue": ("limit: bare ring", "CPU", "cpu_us"),
    "light": ("DataLoader, 0 workers", "CPU", "cpu_us"),
    "heavy": ("DataLoader, 0 workers", "waited", "waited_us"),
}
"""The way that the others are compared with, and what is told beside the wall time."""


def batches(group: str, chosen: Sequence[Case], rounds: int, seconds: float) -> None:
    """Prints the two tables of a group."""
    found: Found = {}
    for case in chosen:
        for _ in range(rounds):
            for way in ways.ways(case):
                ones = found.setdefault(way.name, {}).setdefault(case.name, [])
                ones.append(clock.steady(case, way, seconds))
    base, title, field = OF_A_GROUP[group]
    names = [case.name for case in chosen]

    def wall(way: str, case: str) -> str:
        ones = found[way][case]
        ratio = _middle(ones, "us") / _middle(found[base][case], "us")
        took = " or ".join(sorted({str(one.num_workers) for one in ones}))
        auto = f", took {took}" if way.endswith("auto") else ""
        return f"{_spread([one.us for one in ones])} × {ratio:.2f}{auto}"

    _table(f"{group}, µs a batch", names, found, wall)
    _table(f"{group}: {title}", names, found, lambda way, case: _number(_middle(found[way][case], field)))


def _middle(ones: Sequence[clock.Steady], field: str) -> float:
    return statistics.median(getattr(one, field) for one in ones)


def _table(title: str, names: Sequence[str], found: Found, cell: Callable[[str, str], str]) -> None:
    print(f"| {title} | {' | '.join(names)} |\n|---{'|---' * len(names)}|")
    for way, of_cases in found.items():
        cells = (cell(way, name) if name in of_cases else "" for name in names)
        print(f"| {way} | {' | '.join(cells)} |")
    print(flush=True)


def starts(rounds: int) -> None:
    """Prints the table of first batches."""
    case = Case("first", cases.Rows(64 * 8), 64, (64, cases.WIDTH), shuffle=True)
    compared = ways.passing()
    found: dict[str, list[clock.Start]] = {way.name: [] for way in compared}
    for _ in range(rounds):
        for way in compared:
            found[way.name].append(clock.start(case, way))
    print("| start | first batch, ms | first of a second pass, ms |\n|---|---|---|")
    for name, ones in found.items():
        first, second = [one.first_ms for one in ones], [one.second_pass_ms for one in ones]
        print(f"| {name} | {_spread(first)} | {_spread(second)} |", flush=True)


def memories() -> None:
    """Prints the table of memory."""
    print("\n| 4 MiB, two workers | of their own, MB | shared, MB |\n|---|---|---|")
    for way in ways.of_two_workers():
        command = [sys.executable, __file__, "--memory", way.name]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
        found = memory.Memory(*json.loads(output))
        print(f"| {way.name} | {found.own_mb:.1f} | {found.shared_mb:.1f} |", flush=True)


def _memory(name: str) -> None:
    (case,) = cases.queues(4096)
    way = next(way for way in ways.of_two_workers() if way.name == name)
    print(json.dumps(memory.peak(case, way)))


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
    parser.add_argument("--quick", action="store_true", help="shorter, and fewer cases")
    parser.add_argument(
        "--only", nargs="+", metavar="WORD", help="in 'queue 4 KiB' and the like, or: start, memory"
    )
    parser.add_argument("--memory", metavar="WAY", help=argparse.SUPPRESS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.memory:
        _memory(given.memory)
        return
    rounds, seconds = given.rounds or (1 if given.quick else 3), 0.05 if given.quick else 0.25

    def wanted(name: str) -> bool:
        return any(word in name for word in given.only) if given.only else True

    print(f"torch {torch.__version__}, one thread, {rounds} rounds; median (min … max)")
    print(f"{os.cpu_count()} cores, load before it {os.getloadavg()[0]:.1f}: burn needs idle ones")
    if not ways.stateful():
        print("torchdata is not installed: no rows of its StatefulDataLoader")
    print()
    for group, members in (cases.few() if given.quick else cases.every()).items():
        if chosen := [case for case in members if wanted(f"{group} {case.name}")]:
            batches(group, chosen, rounds, seconds)
    if wanted("start"):
        starts(rounds)
    if wanted("memory"):
        memories()


if __name__ == "__main__":
    main()
