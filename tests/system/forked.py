"""Sessions as forks of a process that has imported torch: the worker's real program without two seconds of
imports each.

    python tests/system/forked.py PACKAGE…      runs a session of each, one after the other
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
import torch._dynamo  # the first optimizer imports it: a second per session otherwise
from waiting import wait_for

from roost.base.errors import Refused
from roost.package.package import Package
from roost.worker import training  # noqa: F401  - imported once, before the forks
from roost.worker.__main__ import main as work


def fork_session(package: Package, overrides: list[str]) -> int:
    """Starts a session as a child in a group of its own; gives its pid. The caller waits for it."""
    lock_fd = wait_for(lambda: _lock(package))
    number = package.new_session({"kind": "train", "device": "cpu", "overrides": overrides})
    pid = os.fork()
    if pid == 0:
        _become_worker(package, number)
    assert lock_fd is not None
    os.close(lock_fd)
    return pid


def _lock(package: Package) -> int | None:
    """The lock, once the kernel has taken down the loader workers of the session that was killed."""
    try:
        return package.lock()
    except Refused:
        return None


def _become_worker(package: Package, number: int) -> None:
    os.setsid()
    output = os.open(package.output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.chdir(package.path)
    code = 1
    try:
        code = work([str(package.path), str(number)])
    finally:
        os._exit(code)


def main(packages: list[str]) -> None:
    """Prints the exit code of each package's session."""
    torch.set_num_threads(1)  # before anything computes: a pool of threads does not survive a fork
    for path in packages:
        _, status = os.waitpid(fork_session(Package.open(path), []), 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
