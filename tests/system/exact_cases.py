"""Runs of every kind, cut and gone on with: by one process that has imported torch, a second or two a case.

    echo "gan kill 2" | python tests/system/exact_cases.py      KIND, kill or stop, loader workers at first
    echo "gan rank 2 3 fsdp behind" | …                         and RANKS, ddp or fsdp, saves: behind, at-once

Answers each line with one of its own: ``same``, or which parts of the outcome differ.
"""

from __future__ import annotations

import random
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import ended
import exact
import torch
from ended import Cell, End, end_when
from soak_resume import KINDS

from roost.package.package import PackageFolder

_SHORTER = ["max_epochs=3", "pause=0.002"]
_LAST_STEP = 20
"""After which no run is cut: each goes on for a while from there."""


@cache
def uninterrupted(root: Path, kind: str, cell: Cell) -> dict[str, Any]:
    """The result of a run of this kind without interruption."""
    package = exact.create(root, [*KINDS[kind], *_SHORTER])
    _finish(package, cell.fork(package, []))
    return exact.fingerprint(package.path)


def _finish(package: PackageFolder, pids: list[int]) -> None:
    assert not any(ended.wait_for_ranks(pids)), ended.output_tails(package, len(pids))


def moment(chance: random.Random) -> exact.Moment:
    """In training, in a validation, or inside a save."""
    step = chance.randrange(1, _LAST_STEP)
    return exact.at_phase(chance.choice(["training", "training", "validating", "saving"]), step)


def cut(root: Path, kind: str, end: End, workers: int, cell: Cell) -> dict[str, Any]:
    """What a run gives that was ended somewhere and gone on with, by another number of workers."""
    chance = random.Random(f"{kind} {end} {workers}")
    for _ in range(9):  # a moment may be over before anybody sees it
        package = exact.create(root, [*KINDS[kind], *_SHORTER, *cell.settings])
        pids = cell.fork(package, [f"data.num_workers={workers}"])
        if end_when(package, pids, moment(chance), by=end)[0]:
            break
    else:
        raise AssertionError("it ended before each moment")
    _finish(package, cell.fork(package, [f"data.num_workers={2 - workers}"]))
    return exact.fingerprint(package.path)


def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="roost-exact-") as folder:
        for line in sys.stdin:
            kind, end, workers, *rest = line.split()
            cell = Cell(int(rest[0]), rest[1], rest[2] == "behind") if rest else Cell()
            try:
                expected = uninterrupted(Path(folder), kind, cell._replace(asynchronous=True))
                got = cut(Path(folder), kind, end, int(workers), cell)  # type: ignore[arg-type]
                different = [name for name in expected if got[name] != expected[name]]
                answer = f"different: {', '.join(different)}" if different else "same"
            except AssertionError as error:
                answer = repr(error)
            print(answer, flush=True)


if __name__ == "__main__":
    main()
