"""A thousand kills and stops: every run that goes on must equal the uninterrupted one bit for bit.

    python tests/system/soak_resume.py [--kills 1000] [--seed 0] [--kinds mlp gan weighted …]

Sessions are forked from this process, which has imported torch and taken no step, so that a leg costs its
training and not two seconds of imports; everything else is the worker's real program in a process of its
own, ended at a random moment: by SIGKILL to its group, to the trainer alone or to one of its loader workers,
or by SIGTERM; in training, in a validation, inside a save, while it starts, with 0, 1 or 2 loader workers,
changed between legs. The kinds of projects and of data take turns.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any, Literal

import data_kinds
import exact
import torch
from exact_data import workers_of
from forked import fork_session

from roost.base.errors import STOPPED_EXIT_CODE
from roost.package import progress
from roost.package.package import Package

End = Literal["kill", "trainer", "worker", "stop"]
DATA = {**data_kinds.KINDS, **data_kinds.RARE}
KINDS = {**exact.KINDS, **DATA}


def end_when(package: Package, pid: int, moment: exact.Moment, *, by: End) -> tuple[bool, str]:
    """Ends the session at the moment: by SIGKILL to its group, to the trainer alone, or to a loader worker,
    upon which it fails; or by SIGTERM, upon which it saves and exits with 75. False when it ended well."""
    progress.reset(package.progress)
    deadline = time.monotonic() + 60
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            if status:
                raise AssertionError(
                    f"status {status} in {package.path}: {package.output.read_text()[-2000:]}"
                )
            return False, "ended"
        if moment(package.path, time.monotonic()) or time.monotonic() > deadline:
            look = progress.read(package.progress)
            return _end(pid, by, look.phase if look else "importing")
        time.sleep(0.0003)


def _end(pid: int, by: End, phase: str) -> tuple[bool, str]:
    workers = workers_of(pid) if by == "worker" else []
    by = "kill" if by == "worker" and not workers else by
    with contextlib.suppress(ProcessLookupError):  # it has just ended
        if by == "stop":
            os.kill(pid, signal.SIGTERM)
        elif by == "worker":
            os.kill(workers[-1], signal.SIGKILL)
        elif by == "trainer":
            os.kill(pid, signal.SIGKILL)
        else:
            os.killpg(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    # 0: it had just ended. Of a stop the last: before it could listen. A worker may be missed by nobody.
    codes = {"stop": (0, STOPPED_EXIT_CODE, -signal.SIGTERM), "worker": (0, 1)}
    assert code in codes.get(by, (0, -signal.SIGKILL)), f"{by}: {code}"
    return code != 0, f"{by} {phase}" if code else "ended"


@cache
def uninterrupted(root: Path, kind: str, workers: int) -> dict[str, Any]:
    """What the run gives when nobody disturbs it."""
    package = exact.create(root, [*KINDS[kind], f"data.num_workers={workers}"])
    _, status = os.waitpid(fork_session(package, []), 0)
    assert status == 0, package.output.read_text()
    return exact.fingerprint(package.path)


def cut(package: Package, kind: str, workers: int, chance: random.Random, gentle: float) -> Counter[str]:
    """Runs the package to its end, ended on the way however often; gives how often, and in which phases.

    Args:
        package: New.
        kind: One of `KINDS`.
        workers: With which it began, where they decide on the order.
        chance: Decides on all.
        gentle: The share of SIGTERM.
    """
    phases = Counter[str]()
    is_data, is_stream = kind in DATA, kind in data_kinds.STREAMS
    for leg in itertools.count():
        # Without a checkpoint it begins anew, with the number that it is asked for.
        has_begun = bool(package.store().line())
        asked = workers if is_stream and not has_begun else chance.choice([0, 0, 1, 2, 2])
        pid = fork_session(package, [f"data.num_workers={asked}"])
        others: list[End] = ["kill", "kill", "trainer", "worker"] if is_data else ["kill"]
        by: End = "stop" if chance.random() < gentle else chance.choice(others)
        moment = exact.random_moment(chance, 22 if is_data else 44)
        ended, phase = end_when(package, pid, moment if leg < 40 else exact.after_seconds(1e9), by=by)
        if not ended:
            return phases
        phases[phase] += 1
    raise AssertionError("it has no end")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--gentle", type=float, default=0.3, help="the share of SIGTERM instead of SIGKILL")
    parser.add_argument(
        "--kinds", nargs="+", choices=[*KINDS, "data"], default=list(KINDS), help="data: all of data"
    )
    asked = parser.parse_args()
    torch.set_num_threads(1)
    chance, phases, began = random.Random(asked.seed), Counter[str](), time.monotonic()
    kinds = list(DATA) if asked.kinds == ["data"] else asked.kinds
    with tempfile.TemporaryDirectory(prefix="roost-soak-") as folder:
        for runs, kind in enumerate(itertools.cycle(kinds), 1):
            workers = chance.choice([1, 2]) if kind in data_kinds.STREAMS else 0
            expected = uninterrupted(Path(folder), kind, workers)
            package = exact.create(Path(folder), [*KINDS[kind], f"data.num_workers={workers}"])
            phases += cut(package, kind, workers, chance, asked.gentle)
            different = data_kinds.compare(kind, expected, exact.fingerprint(package.path), may_be_whole=True)
            if different:
                print(f"DIFFERENT {kind}: {different} in {package.path}", flush=True)
                os._exit(1)  # keeps the folder
            kills, seconds = phases.total(), time.monotonic() - began
            print(
                f"{kind}: {runs} runs, {kills} kills, all bit-identical, {seconds:.0f} s; {dict(phases)}",
                flush=True,
            )
            if kills >= asked.kills:
                break
    return 0


if __name__ == "__main__":
    sys.exit(main())
