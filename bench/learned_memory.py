"""Whether what is learned of memory holds, and what it wastes.

    python bench/learned_memory.py [--jobs 2000] [--runs 12] [--seed 0]

The model: a job takes a + b * batch MB, a of 500 to 8,000, b of 10 to 300, batch of 8 to 128. Each run takes
that times (1 + 1.5 % Gaussian noise); one run in fifty takes 1 to 4 % more, from fragmentation. The driver
takes 300 to 600 MB, of each run 2 % more or less. A job's first run is on a whole card; each later one gets
what `lab/learned.py` gives. A reservation holds if it is at least what the run takes. Beside it: the next
batch of a job, given by a line through two others.

Then first runs that were given too little: what somebody guessed, a tenth to nine tenths of what they take,
on machines of 24 GB cards, with an 80 GB one or without. Counted are those that some card can hold. An
attempt that runs out has reached 50 to 100 % of what it had, and asked for what was too much.
"""

from __future__ import annotations

import argparse
import random
from dataclasses import dataclass, field

from roost.lab.memory.memory_prediction import OutOfMemory, predict_memory, resources_after_out_of_memory
from roost.lab.queue.history import MemoryPeak


@dataclass
class Counted:
    """Reservations of one kind."""

    over: list[float] = field(default_factory=list)
    whole: int = 0

    def row(self, name: str) -> str:
        held = sum(one >= 0 for one in self.over) / len(self.over) * 100
        mean = sum(self.over) / len(self.over) * 100
        return f"| {name} | {len(self.over):,} | {held:.2f} | {mean:.1f} | {self.whole} |"


class Job:
    """One project, whose runs differ by noise and batch."""

    def __init__(self, random_: random.Random) -> None:
        self._random = random_
        self._base, self._slope = random_.uniform(500, 8000), random_.uniform(10, 300)
        self._overhead = random_.uniform(300, 600)
        self.batch = random_.choice((8, 16, 32, 64, 128))

    def run(self, at: int, batch: int | None = None) -> MemoryPeak:
        scale = batch or self.batch
        peak = (self._base + self._slope * scale) * (1 + self._random.gauss(0, 0.015))
        if self._random.random() < 0.02:
            peak *= 1 + self._random.uniform(0.01, 0.04)
        overhead = self._overhead * self._random.uniform(0.98, 1.02)
        return MemoryPeak("key", float(scale), peak, overhead, 1, "H100", float(at))


def compare(counted: Counted, known: list[MemoryPeak], taken: MemoryPeak) -> None:
    """Counts one reservation, made of what was known."""
    given = predict_memory(known, scale=taken.scale, device="H100", ranks=1, declared_mb=None)
    if given.mb is None:
        counted.whole += 1
    else:
        counted.over.append(given.mb / (taken.peak_mb + taken.overhead_mb) - 1)


CARD_MB, LARGE_MB = 24_064, 80_282
"""What tasks may have of a card of 24 GB and of one of 80."""


def attempts(need_mb: float, given_mb: int, largest_mb: int, random_: random.Random) -> int | None:
    """With which attempt a task ends well; None: with none."""
    reserved: int | None = given_mb
    card_mb, count, number = CARD_MB, 0, 1
    while need_mb > (had := card_mb if reserved is None else reserved):
        peak_mb = had * random_.uniform(0.5, 1.0)
        asked_mb = max(had - peak_mb + 1, random_.uniform(0.0, 2048.0))
        failed = OutOfMemory(reserved, card_mb, largest_mb, peak_mb, asked_mb)
        again = resources_after_out_of_memory(failed, count=count)
        if again is None:
            return None
        reserved = None if again.whole else again.mb
        card_mb = largest_mb if again.whole and (again.mb or 0) > card_mb else card_mb
        count, number = again.count, number + 1
    return number


def out_of_memory(jobs: int, random_: random.Random) -> None:
    """Prints how first runs end that were given too little."""
    print("\n| largest card | tasks | end well, % | second attempt, % | third | fourth |")
    print("|---|---|---|---|---|---|")
    for name, largest_mb in (("24 GB", CARD_MB), ("80 GB", LARGE_MB)):
        ends: list[int | None] = []
        while len(ends) < jobs:
            taken = Job(random_).run(0)
            need_mb = taken.peak_mb + taken.overhead_mb
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
    asked = parser.parse_args()
    random_ = random.Random(asked.seed)
    by_run = [Counted() for _ in range(asked.runs)]
    line, later = Counted(), Counted()
    for _ in range(asked.jobs):
        job = Job(random_)
        known = [job.run(0)]
        for number in range(1, asked.runs):
            taken = job.run(number)
            compare(by_run[number], known, taken)
            if number >= 3:
                compare(later, known, taken)
            known.append(taken)
        others = [job.run(0, batch) for batch in (16, 64)]
        compare(line, others, job.run(1, random_.choice((8, 32, 128))))
    print("| known | reservations | hold, % | over, mean % | whole cards |\n|---|---|---|---|---|")
    for number in range(1, min(4, asked.runs)):
        print(by_run[number].row(f"{number} run{'' if number == 1 else 's'}"))
    print(later.row("3 runs and more"))
    print(line.row("2 runs of other batches"))
    out_of_memory(asked.jobs, random_)


if __name__ == "__main__":
    main()
