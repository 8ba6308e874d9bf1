"""Whether what is learned of memory holds, and what it wastes.

    python bench/learned_memory.py [--jobs 2000] [--runs 12] [--seed 0]

The model: a job takes a + b * batch MB, a of 500 to 8,000, b of 10 to 300, batch of 8 to 128. Each run takes
that times (1 + 1.5 % Gaussian noise); one run in fifty takes 1 to 4 % more, from fragmentation. The driver
takes 300 to 600 MB, of each run 2 % more or less. A job's first run is on a whole card; each later one gets
what `lab/learned.py` gives. A reservation holds if it is at least what the run takes. Beside it: the next
batch of a job, given by a line through two others.
"""

from __future__ import annotations

import argparse
import random
from dataclasses import dataclass, field

from roost.lab.learned import reserve
from roost.lab.remembered import Peak


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

    def run(self, at: int, batch: int | None = None) -> Peak:
        scale = batch or self.batch
        peak = (self._base + self._slope * scale) * (1 + self._random.gauss(0, 0.015))
        if self._random.random() < 0.02:
            peak *= 1 + self._random.uniform(0.01, 0.04)
        overhead = self._overhead * self._random.uniform(0.98, 1.02)
        return Peak("key", float(scale), peak, overhead, 1, "H100", float(at))


def compare(counted: Counted, known: list[Peak], taken: Peak) -> None:
    """Counts one reservation, made of what was known."""
    given = reserve(known, scale=taken.scale, device="H100", ranks=1, declared_mb=None)
    if given.mb is None:
        counted.whole += 1
    else:
        counted.over.append(given.mb / (taken.peak_mb + taken.overhead_mb) - 1)


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


if __name__ == "__main__":
    main()
