"""A thousand kills and stops: every run that goes on must equal the uninterrupted one bit for bit.

    python tests/system/soak_resume.py [--kills 1000] [--seed 0] [--kinds mlp gan weighted …]
                                       [--ranks 3] [--strategy fsdp] [--synchronous]

Sessions are forked from this process, which has imported torch and taken no step, so that a leg costs its
training and not two seconds of imports; everything else is the worker's real program in processes of its
own, ended at a random moment: by SIGKILL to all, to the trainer or one rank alone or to a loader worker, or
by SIGTERM to all or to one rank; in training, in a validation, inside a save, while it starts, with 0, 1 or 2
loader workers, changed between legs. The kinds of projects and of data take turns. What is compared with is
always the run whose checkpoints are written behind.
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
from functools import cache
from pathlib import Path
from typing import Any

import data_kinds
import ended
import exact
import torch
from ended import Cell, End, end_when

from roost.package.package import PackageFolder

DATA = {**data_kinds.KINDS, **data_kinds.RARE}
KINDS = {**exact.KINDS, **DATA}
WITHOUT_FSDP = ("skip", "virtual skip")
"""What cannot be together with it."""


@cache
def uninterrupted(root: Path, kind: str, workers: int, cell: Cell) -> dict[str, Any]:
    """The result of the run without interruption."""
    package = exact.create(root, [*KINDS[kind], f"data.num_workers={workers}"])
    codes = ended.wait_for_ranks(cell.fork(package, []))
    assert not any(codes), ended.output_tails(package, cell.ranks)
    return exact.fingerprint(package.path)


def cut(
    package: PackageFolder, kind: str, workers: int, chance: random.Random, gentle: float, cell: Cell
) -> Counter[str]:
    """Runs the package to its end, ended on the way however often; gives how often, and in which phases.

    Args:
        package: New.
        kind: One of `KINDS`.
        workers: With which it began, where they decide on the order.
        chance: Decides on all.
        gentle: The share of SIGTERM.
        cell: How it is trained and saved.
    """
    phases = Counter[str]()
    is_data, is_stream = kind in DATA, kind in data_kinds.STREAMS
    hard: list[End] = ["kill", "kill", "trainer", "worker"] if is_data else ["kill"]
    if "on_step_error=skip" in KINDS[kind]:
        hard = [one for one in hard if one != "worker"]  # its step would be skipped, and recorded as inexact
    soft: list[End] = ["stop"]
    if cell.ranks > 1:
        hard, soft = [*hard, "rank"], ["stop", "stop-one"]
    for leg in itertools.count():
        # Without a checkpoint it begins anew, with the number that it is asked for.
        has_begun = bool(package.store().lineage())
        asked = workers if is_stream and not has_begun else chance.choice([0, 0, 1, 2, 2])
        pids = cell.fork(package, [f"data.num_workers={asked}"])
        by = chance.choice(soft if chance.random() < gentle else hard)
        moment = exact.random_moment(chance, 22 if is_data else 44)
        was_ended, phase = end_when(package, pids, moment if leg < 40 else exact.after_seconds(1e9), by=by)
        if not was_ended:
            return phases
        phases[phase] += 1
    raise AssertionError("it has no end")


def kinds_of(cell: Cell) -> list[str]:
    """What can be trained so."""
    return [kind for kind in KINDS if cell.strategy != "fsdp" or kind not in WITHOUT_FSDP]


def main() -> int:
    asked = _asked()
    cell = Cell(asked.ranks, asked.strategy, not asked.synchronous)
    torch.set_num_threads(1)
    chance, phases, began = random.Random(asked.seed), Counter[str](), time.monotonic()
    kinds = list(DATA) if asked.kinds == ["data"] else asked.kinds or list(KINDS)
    kinds = [kind for kind in kinds if kind in kinds_of(cell)]
    with tempfile.TemporaryDirectory(prefix="roost-soak-") as folder:
        for runs, kind in enumerate(itertools.cycle(kinds), 1):
            workers = chance.choice([1, 2]) if kind in data_kinds.STREAMS else 0
            expected = uninterrupted(Path(folder), kind, workers, cell._replace(asynchronous=True))
            package = exact.create(
                Path(folder), [*KINDS[kind], f"data.num_workers={workers}", *cell.settings]
            )
            phases += cut(package, kind, workers, chance, asked.gentle, cell)
            different = data_kinds.compare(kind, expected, exact.fingerprint(package.path), may_be_whole=True)
            if different:
                print(f"DIFFERENT {kind}: {different} in {package.path}", flush=True)
                os._exit(1)  # keeps the folder
            kills, seconds = phases.total(), time.monotonic() - began
            print(
                f"{kind}: {runs} runs, {kills} kills, all bit-identical, {seconds:.0f} s; {dict(phases)}",
                flush=True,
            )
            if kills >= asked.kills and (runs >= len(kinds) or not asked.every):
                break
    return 0


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--gentle", type=float, default=0.3, help="the share of SIGTERM instead of SIGKILL")
    parser.add_argument("--kinds", nargs="+", choices=[*KINDS, "data"], help="data: all of data")
    parser.add_argument("--every", action="store_true", help="not before each kind was there")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--strategy", choices=["single", "ddp", "fsdp"], default="single")
    parser.add_argument("--synchronous", action="store_true", help="a save is written before it returns")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
