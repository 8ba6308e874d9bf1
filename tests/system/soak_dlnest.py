"""Kills of a project of DLNest: every run that goes on must equal the uninterrupted one bit for bit.

    python tests/system/soak_dlnest.py [--kills 50] [--seed 0] [--kinds saves inside workers ranks]

As soak_resume.py: sessions are forked from this process and are otherwise the worker's real program, ended at
a random moment, by SIGKILL or SIGTERM, to all or to one rank or a loader worker.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[2]))

import exact
import torch
from ended import End, end_when, output_tails, wait_for_ranks
from forked import fork_ranks

from roost.package.package import PackageFolder
from roost.worker import dlnest_task  # noqa: F401  - imported once, before the forks
from tests.project.dlnest import loops


class Kind(NamedTuple):
    """A project, and how it is trained."""

    values: dict[str, Any]
    ranks: int = 1

    def create(self, root: Path) -> PackageFolder:
        """A new package."""
        return loops.package(root, **self.values)

    def fork(self, package: PackageFolder) -> list[int]:
        """A session; gives the pids of its ranks."""
        return fork_ranks(package, [], count=self.ranks, strategy="ddp" if self.ranks > 1 else "single")


SLOW = {"step_seconds": 0.004}


def roost_section(every: str | int) -> dict[str, Any]:
    return {"seed": 3, "threads": 1, "log_every": 3, "checkpoint": {"every": every}}


KINDS = {
    "saves": Kind({**SLOW, "roost": roost_section("never")}),
    "inside": Kind({**SLOW, "saves": False, "roost": roost_section(4)}),
    "workers": Kind({**SLOW, "num_workers": 2, "roost": roost_section("5/ep")}),
    "ranks": Kind({**SLOW, "roost": roost_section(4)}, ranks=2),
}


def uninterrupted(root: Path, kind: Kind) -> dict[str, Any]:
    """The result of the run without interruption."""
    package = kind.create(root)
    codes = wait_for_ranks(kind.fork(package))
    assert not any(codes), output_tails(package, kind.ranks)
    return loops.fingerprint(package)


def cut(package: PackageFolder, kind: Kind, chance: random.Random) -> Counter[str]:
    """Runs the package to its end, ended on the way however often; gives how often, and in which phases."""
    phases = Counter[str]()
    several: list[End] = ["rank", "stop-one"] if kind.ranks > 1 else []
    ways: list[End] = [
        "kill",
        "kill",
        "stop",
        *several,
        *(["worker"] if kind.values.get("num_workers") else []),
    ]
    for leg in itertools.count():
        pids = kind.fork(package)
        moment = exact.random_moment(chance) if leg < 40 else exact.after_seconds(1e9)
        was_ended, phase = end_when(package, pids, moment, by=chance.choice(ways))
        if not was_ended:
            return phases
        phases[phase] += 1
    raise AssertionError("it has no end")


def soak(root: Path, *, kills: int, seed: int, kinds: list[str]) -> None:
    """Ends runs of the kinds in turn until there were so many ends."""
    chance, phases, began = random.Random(seed), Counter[str](), time.monotonic()
    expected = {name: uninterrupted(root, KINDS[name]) for name in kinds}
    for runs, name in enumerate(itertools.cycle(kinds), 1):
        package = KINDS[name].create(root)
        phases += cut(package, KINDS[name], chance)
        loops.compare(loops.fingerprint(package), expected[name])
        seconds = time.monotonic() - began
        print(
            f"{name}: {runs} runs, {phases.total()} ends, all bit-identical, {seconds:.0f} s; {dict(phases)}",
            flush=True,
        )
        if phases.total() >= kills and runs >= len(kinds):
            return


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="roost-soak-") as folder:
        try:
            soak(Path(folder), kills=asked.kills, seed=asked.seed, kinds=asked.kinds)
        except AssertionError as error:
            print(f"{error}\nthe packages are in {folder}", flush=True)
            os._exit(1)  # keeps the folder
    return 0


if __name__ == "__main__":
    sys.exit(main())
