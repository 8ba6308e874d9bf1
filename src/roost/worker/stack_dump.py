"""Lets the supervisor ask where a run hangs."""

from __future__ import annotations

import faulthandler
import os
import sys

from roost.base.system.worker_protocol import STACKS_SIGNAL, STACKS_VARIABLE


def register() -> None:
    """From now on this process, and each that it forks, answers `STACKS_SIGNAL` with the stacks of all its
    threads, written into the supervisor's pipe. It answers in C, so also where Python code cannot run."""
    given = os.environ.pop(STACKS_VARIABLE, None)
    if given is not None and sys.platform == "linux":
        fd = int(given)
        os.set_inheritable(fd, False)
        faulthandler.register(STACKS_SIGNAL, file=fd, all_threads=True, chain=False)
