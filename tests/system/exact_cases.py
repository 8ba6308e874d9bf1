"""Runs of every kind, cut once and gone on with: by one process that has imported torch, a second a case.

    echo "gan kill 2" | python tests/system/exact_cases.py      KIND, kill or stop, loader workers at first

Answers each line with one of its own: ``same``, or which parts of the outcome differ.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import exact
import torch
from forked import fork_session
from soak_resume import end_when

_SHORTER = ["max_epochs=3", "pause=0.002"]
_LAST_STEP = 20
"""After which no run is cut: each goes on for a while from there."""


@cache
def uninterrupted(root: Path, kind: str) -> dict[str, Any]:
    """What the run of this kind gives when nobody disturbs it."""
    package = exact.create(root, [*exact.KINDS[kind], *_SHORTER])
    _, status = os.waitpid(fork_session(package, []), 0)
    assert status == 0, package.output.read_text()[-2000:]
    return exact.fingerprint(package.path)


def moment(chance: random.Random) -> exact.Moment:
    """In training, in a validation, or inside a save."""
    step = chance.randrange(1, _LAST_STEP)
    return exact.at_phase(chance.choice(["training", "training", "validating", "saving"]), step)


def cut(root: Path, kind: str, end: str, workers: int) -> dict[str, Any]:
    """What a run gives that was ended somewhere and gone on with, by another number of workers."""
    chance = random.Random(f"{kind} {end} {workers}")
    for _ in range(9):  # a moment may be over before anybody sees it
        package = exact.create(root, [*exact.KINDS[kind], *_SHORTER])
        pid = fork_session(package, [f"data.num_workers={workers}"])
        if end_when(package, pid, moment(chance), by=end)[0]:
            break
    else:
        raise AssertionError("it ended before each moment")
    _, status = os.waitpid(fork_session(package, [f"data.num_workers={2 - workers}"]), 0)
    assert status == 0, package.output.read_text()[-2000:]
    return exact.fingerprint(package.path)


def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="roost-exact-") as folder:
        for line in sys.stdin:
            kind, end, workers = line.split()
            try:
                expected, got = uninterrupted(Path(folder), kind), cut(Path(folder), kind, end, int(workers))
                different = [name for name in expected if got[name] != expected[name]]
                answer = f"different: {', '.join(different)}" if different else "same"
            except AssertionError as error:
                answer = repr(error)
            print(answer, flush=True)


if __name__ == "__main__":
    main()
