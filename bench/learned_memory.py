"""The accuracy of predicted GPU memory: how often a reservation is enough, and how much of it is unused.

    python bench/learned_memory.py [--jobs 2000] [--runs 12] [--seed 0]

The runs are simulated. A job uses a + b * batch MB, with a of 500 to 8,000, b of 10 to 300, batch of 8 to
128. Each run uses that times (1 + 1.5 % Gaussian noise); one run in fifty uses 1 to 4 % more, from
fragmentation. The driver uses 300 to 600 MB, for each run up to 2 % more or less. A job's first run has a
whole card; each later one gets what `roost.lab.memory.memory_prediction` predicts. A reservation holds if it
is at least what the run uses. The last row of the table is for runs with another batch size, predicted by a
line through two runs.

The second table is for first runs that a user reserved too little memory for: a tenth to nine tenths of what
they use, on machines of 24 GB cards, with or without an 80 GB card. Runs that fit on no card are not counted.
An attempt that runs out of memory has reached 50 to 100 % of its reservation when an allocation exceeds it.
"""

from __future__ import annotations

import argparse
import random
from dataclasses import dataclass, field

from roost.devices.resource_request import ResourceRequest
from roost.lab.memory.memory_prediction import OutOfMemory, predict_memory, request_after_out_of_memory
from roost.lab.queue.history import MemoryPeak


@dataclass
class ReservationCount:
    """The reservations of one row of the table."""

    over: list[float] = field(default_factory=list)
    whole: int = 0

    def row(self, name: str) -> str:
        held = sum(one >= 0 for one in self.over) / len(self.over) * 100
        mean = sum(self.over) / len(self.over) * 100
        return f"| {name} | {len(self.over):,} | {held:.2f} | {mean:.1f} | {self.whole} |"


class Job:
    """One project, whose runs differ by noise and batch size."""

    def __init__(self, random_: random.Random) -> None:
        self._random = random_
        self._base, self._slope = random_.uniform(500, 8000), random_.uniform(10, 300)
        self._overhead = random_.uniform(300, 600)
        self.batch = random_.choice((8, 16, 32, 64, 128))

    def run(self, number: int, batch: int | None = None) -> MemoryPeak:
        scale = batch or self.batch
        peak = (self._base + self._slope * scale) * (1 + self._random.gauss(0, 0.015))
        if self._random.random() < 0.02:
            peak *= 1 + self._random.uniform(0.01, 0.04)
        overhead = self._overhead * self._random.uniform(0.98, 1.02)
        return MemoryPeak("key", float(scale), peak, overhead, 1, "H100", float(number))


def compare(counted: ReservationCount, earlier: list[MemoryPeak], used: MemoryPeak) -> None:
    """Counts one reservation, predicted from the runs before it."""
    predicted = predict_memory(earlier, scale=used.scale, device="H100", ranks=1, declared_mb=None)
    if predicted.mb is None:
        counted.whole += 1
    else:
        counted.over.append(predicted.mb / (used.peak_mb + used.overhead_mb) - 1)


CARD_MB, LARGE_MB = 24_064, 80_282
"""Memory for tasks on a card of 24 GB and on one of 80 GB."""


def attempts(need_mb: float, given_mb: int, largest_mb: int, random_: random.Random) -> int | None:
    """Returns the number of the attempt that succeeds; None if none does."""
    reserved: int | None = given_mb
    need = ResourceRequest(cards=1, memory_mb=given_mb)
    card_mb, number = CARD_MB, 1
    while need_mb > (limit_mb := card_mb if reserved is None else reserved):
        peak_mb = limit_mb * random_.uniform(0.5, 1.0)
        requested_mb = max(limit_mb - peak_mb + 1, random_.uniform(0.0, 2048.0))
        failed = OutOfMemory(reserved, card_mb, largest_mb, peak_mb, requested_mb)
        retry = request_after_out_of_memory(failed, need)
        if retry is None:
            return None
        need, number = retry, number + 1
        reserved = None if need.whole else need.least_mb
        card_mb = largest_mb if need.whole and (need.least_mb or 0) > card_mb else card_mb
    return number


def out_of_memory(jobs: int, random_: random.Random) -> None:
    """Prints the table of first runs with too small a reservation."""
    print("\n| largest card | tasks | succeed, % | second attempt, % | third | fourth |")
    print("|---|---|---|---|---|---|")
    for name, largest_mb in (("24 GB", CARD_MB), ("80 GB", LARGE_MB)):
        ends: list[int | None] = []
        while len(ends) < jobs:
            used = Job(random_).run(0)
            need_mb = used.peak_mb + used.overhead_mb
            guess_mb = int(min(need_mb * random_.uniform(0.1, 0.9), CARD_MB))
            if need_mb <= largest_mb:
                ends.append(attempts(need_mb, guess_mb, largest_mb, random_))
        well, second, third, fourth = (
            sum(end in of for end in ends) / jobs * 100 for of in ((2, 3, 4), (2,), (3,), (4,))
        )
        print(f"| {name} | {jobs:,} | {well:.1f} | {second:.1f} | {third:.1f} | {fourth:.1f} |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--runs", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    random_ = random.Random(arguments.seed)
    by_run = [ReservationCount() for _ in range(arguments.runs)]
    line, later = ReservationCount(), ReservationCount()
    for _ in range(arguments.jobs):
        job = Job(random_)
        earlier = [job.run(0)]
        for number in range(1, arguments.runs):
            used = job.run(number)
            compare(by_run[number], earlier, used)
            if number >= 3:
                compare(later, earlier, used)
            earlier.append(used)
        others = [job.run(0, batch) for batch in (16, 64)]
        compare(line, others, job.run(1, random_.choice((8, 32, 128))))
    print("| runs before | reservations | hold, % | over, mean % | whole cards |\n|---|---|---|---|---|")
    for number in range(1, min(4, arguments.runs)):
        print(by_run[number].row(f"{number} run{'' if number == 1 else 's'}"))
    print(later.row("3 runs and more"))
    print(line.row("2 runs of other batches"))
    out_of_memory(arguments.jobs, random_)


if __name__ == "__main__":
    main()
