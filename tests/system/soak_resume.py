"""A thousand kills and stops: every run that goes on must equal the uninterrupted one bit for bit.

    python tests/system/soak_resume.py [--kills 1000] [--seed 0] [--kinds mlp gan …]

Sessions are forked from this process, which has imported torch and taken no step, so that a leg costs its
training and not two seconds of imports; everything else is the worker's real program in a process of its
own, ended at a random moment by SIGKILL to its group or by SIGTERM: in training, in a validation, inside a
save, while it starts, with 0 or 2 loader workers, changed between legs. The kinds of projects take turns.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import exact
import torch
from forked import fork_session

from roost.base.errors import STOPPED_EXIT_CODE
from roost.config import layers
from roost.package import progress, snapshot
from roost.package.package import Package


def create(root: Path, overrides: list[str]) -> Package:
    """A package of the project with other settings."""
    config = layers.load(exact.PROJECT / "config.yaml", overrides=overrides)
    return Package.create(
        root, values=config.values, provenance=config.provenance, selection=snapshot.select(exact.PROJECT)
    )


def end_when(package: Package, pid: int, moment: exact.Moment, *, gently: bool) -> tuple[bool, str]:
    """Ends the session at the moment: SIGKILL to its group, or SIGTERM, upon which it saves and exits with
    75. False when it ended well before."""
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
            phase = look.phase if look else "importing"
            if not gently:
                os.killpg(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                return True, f"killed {phase}"
            os.kill(pid, signal.SIGTERM)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            assert code in (0, STOPPED_EXIT_CODE, -signal.SIGTERM), code  # the last: before it could listen
            return code != 0, f"stopped {phase}" if code else "ended"
        time.sleep(0.0003)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--gentle", type=float, default=0.3, help="the share of SIGTERM instead of SIGKILL")
    parser.add_argument("--kinds", nargs="+", choices=exact.KINDS, default=list(exact.KINDS))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    chance = random.Random(asked.seed)
    kills, runs, phases, began = 0, 0, Counter[str](), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="roost-soak-") as folder:
        expected = {}
        for kind in asked.kinds:
            reference = create(Path(folder), exact.KINDS[kind])
            _, status = os.waitpid(fork_session(reference, []), 0)
            assert status == 0, reference.output.read_text()
            expected[kind] = exact.fingerprint(reference.path)
        for kind in itertools.cycle(asked.kinds):
            if kills >= asked.kills:
                break
            package = create(Path(folder), exact.KINDS[kind])
            killed, legs = True, 0
            while killed:
                pid = fork_session(package, [f"data.num_workers={chance.choice([0, 0, 2])}"])
                moment = exact.random_moment(chance) if legs < 40 else exact.after_seconds(1e9)
                killed, phase = end_when(package, pid, moment, gently=chance.random() < asked.gentle)
                kills, legs = kills + killed, legs + 1
                phases[phase] += killed
            runs += 1
            got = exact.fingerprint(package.path)
            if got != expected[kind]:
                different = [name for name, part in expected[kind].items() if got[name] != part]
                print(f"DIFFERENT {kind} after {legs} legs: {different} in {package.path}", flush=True)
                os._exit(1)  # keeps the folder
            seconds = time.monotonic() - began
            print(
                f"{kind}: {runs} runs, {kills} kills, all bit-identical, {seconds:.0f} s; {dict(phases)}",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
