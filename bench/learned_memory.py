"""The accuracy of predicted GPU memory: how often a reservation is enough, and how much of it is unused.

    python bench/learned_memory.py [--jobs 2000] [--runs 12] [--seed 0]

The runs are simulated. A job uses a + b * batch MB, with a of 500 to 8,000, b of 10 to 300, batch of 8 to
128. Each run uses that times (1 + 1.5 % Gaussian noise); one run in fifty uses 1 to 4 % more, from
fragmentation. The driver uses 300 to 600 MB, for each run up to 2 % more or less. A job's first run has a
whole card; each later one gets what `roost.lab.memory.memory_prediction` predicts. A reservation holds if it
is at least what the run uses. The last row of the table is for runs with another batch size, predicted by a
line through two runs.

The second table is for sweeps of twenty tasks, one after another, whose settings matter (batch size, width)
or do not (an own one that is another number in each task, dropout, lr), for a second sweep of the same
project after an edit of the code, and for tasks of their own after these. Each width has its own a and b. An
edit leaves the memory as it is in four of five cases, else it multiplies it by 0.8 to 1.25. A run that does
not get enough runs again on a whole card, and is measured there.

The third table is for first runs that a user reserved too little memory for: a tenth to nine tenths of what
they use, on machines of 24 GB cards, with or without an 80 GB card. Runs that fit on no card are not counted.
An attempt that runs out of memory has reached 50 to 100 % of its reservation when an allocation exceeds it.
"""

from __future__ import annotations

import argparse
import random
from dataclasses import dataclass, field

from roost.devices.resource_request import ResourceRequest
from roost.lab.memory.memory_features import MemoryFeatures, memory_features
from roost.lab.memory.memory_prediction import OutOfMemory, predict_memory, request_after_out_of_memory
from roost.lab.memory.run_comparison import RunComparison, SimilarRuns
from roost.lab.queue.history import MemoryPeak


@dataclass
class ReservationCount:
    """The reservations of one row of the table."""

    over: list[float] = field(default_factory=list)
    whole: int = 0

    def row(self, name: str) -> str:
        if not self.over:
            return f"| {name} | 0 | | | {self.whole} |"
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
    count_reservation(counted, SimilarRuns(earlier), used)


def count_reservation(counted: ReservationCount, similar: SimilarRuns, used: MemoryPeak) -> None:
    predicted = predict_memory(similar, scale=used.scale)
    if predicted.mb is None:
        counted.whole += 1
    else:
        counted.over.append(predicted.mb / (used.peak_mb + used.overhead_mb) - 1)


class Project:
    """A project whose runs differ in settings, some of which matter, and in their code."""

    def __init__(self, random_: random.Random) -> None:
        self._random = random_
        self._jobs = {width: Job(random_) for width in (64, 128, 256)}
        self._code, self._edits, self.factor = "c0", 0, 1.0

    def edit(self) -> None:
        self._edits += 1
        self._code = f"c{self._edits}"
        if self._random.random() < 0.2:
            self.factor *= self._random.uniform(0.8, 1.25)

    def features(self, sweep: str, batch: int, **settings: object) -> tuple[MemoryFeatures, float]:
        given = {"width": 128, "dropout": 0.1, "nap": 0, **settings}
        values = {"model": given, "data": {"batch_size": batch}, "precision": "bf16"}
        features, scale = memory_features(values, family="project", code=self._code, sweep=sweep)
        assert scale is not None
        return features, scale

    def run(self, features: MemoryFeatures, batch: int, width: int) -> MemoryPeak:
        peak = self._jobs[width].run(0, batch)
        return peak._replace(key=features.to_text(), peak_mb=peak.peak_mb * self.factor)


SWEEPS: dict[str, dict[str, tuple[object, ...]]] = {
    "an own number": {},
    "an own number, dropout": {"dropout": (0.0, 0.1, 0.5)},
    "an own number, batch": {"batch": (16, 64, 128)},
    "an own number, width": {"width": (64, 128, 256)},
}


def run_tasks(
    project: Project, random_: random.Random, earlier: list[MemoryPeak], name: str, *, sweep: str, count: int
) -> ReservationCount:
    """Runs tasks one after another, each with the memory that those before it have shown."""
    counted = ReservationCount()
    for _ in range(count):
        chosen = {key: random_.choice(values) for key, values in SWEEPS[name].items()}
        batch, width = int(str(chosen.pop("batch", 32))), int(str(chosen.get("width", 128)))
        features, scale = project.features(sweep, batch, nap=random_.random(), lr=random_.random(), **chosen)
        used = project.run(features, batch, width)
        assert used.scale == scale
        count_reservation(counted, RunComparison(earlier[-128:]).similar_to(features), used)
        earlier.append(used)
    return counted


def sweeps(jobs: int, random_: random.Random) -> None:
    """Prints the table of sweeps."""
    print("\n| settings that vary | reservations | hold, % | over, mean % | whole cards |")
    print("|---|---|---|---|---|")
    for name in SWEEPS:
        rows = [ReservationCount() for _ in range(3)]
        for _ in range(jobs):
            project, earlier = Project(random_), list[MemoryPeak]()
            found = [run_tasks(project, random_, earlier, name, sweep="s1", count=20)]
            project.edit()
            found.append(run_tasks(project, random_, earlier, name, sweep="s2", count=20))
            found.append(run_tasks(project, random_, earlier, name, sweep="", count=5))
            for row, one in zip(rows, found, strict=True):
                row.over += one.over
                row.whole += one.whole
        for row, what in zip(
            rows, ("a sweep", "another one after an edit", "tasks of their own"), strict=True
        ):
            print(row.row(f"{name}: {what}"))


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
    sweeps(max(1, arguments.jobs // 20), random_)
    out_of_memory(arguments.jobs, random_)


if __name__ == "__main__":
    main()
