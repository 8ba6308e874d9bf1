"""Sessions as forks of a process that has imported torch: the worker's real program without two seconds of
imports each.

    python tests/system/forked.py [--ranks N] PACKAGE…      runs a session of each, one after the other
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
import torch._dynamo  # the first optimizer imports it: a second per session otherwise
from waiting import wait_for

from roost.base.errors import Refused
from roost.base.system.worker_protocol import RENDEZVOUS_VARIABLE
from roost.package.package import PackageFolder
from roost.supervisor.output.output_file import rank_output_path
from roost.worker import train_task  # noqa: F401  - imported once, before the forks
from roost.worker.__main__ import main as work


def fork_session(package: PackageFolder, overrides: list[str]) -> int:
    """Starts a session as a child in a group of its own; gives its pid. The caller waits for it."""
    [pid] = fork_ranks(package, overrides)
    return pid


def fork_ranks(
    package: PackageFolder, overrides: list[str], *, count: int = 1, strategy: str = "single"
) -> list[int]:
    """As `fork_session`, with so many ranks, each a child in a group of its own; gives their pids."""
    lock_fd = wait_for(lambda: _lock(package))
    how = {"device": "cpu", "strategy": strategy, "ranks": count}
    number = package.new_session({"kind": "train", "overrides": overrides, **how})
    pids = []
    for rank in range(count):
        pid = os.fork()
        if pid == 0:
            place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}
            own = {name: str(value) for name, value in place.items()}
            own[RENDEZVOUS_VARIABLE] = str(package.path / f"meeting-{number}")
            _become_worker(package, number, rank, own if count > 1 else {})
        pids.append(pid)
    assert lock_fd is not None
    os.close(lock_fd)
    return pids


def _lock(package: PackageFolder) -> int | None:
    """The lock, once the kernel has taken down the loader workers of the session that was killed."""
    try:
        return package.lock()
    except Refused:
        return None


def _become_worker(package: PackageFolder, number: int, rank: int, place: Mapping[str, str]) -> None:
    os.setsid()
    os.environ.update(place)
    output = os.open(rank_output_path(str(package.output), rank), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.chdir(package.path)
    code = 1
    try:
        code = work([str(package.path), str(number)])
    finally:
        os._exit(code)


def main() -> None:
    """Prints the exit code of each package's session: 0, or that of the first rank that failed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("packages", nargs="+")
    parser.add_argument("--ranks", type=int, default=1)
    asked = parser.parse_args()
    torch.set_num_threads(1)  # before anything computes: a pool of threads does not survive a fork
    for path in asked.packages:
        pids = fork_ranks(
            PackageFolder.open(path), [], count=asked.ranks, strategy="ddp" if asked.ranks > 1 else "single"
        )
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        print(next(filter(None, codes), 0), flush=True)


if __name__ == "__main__":
    main()
