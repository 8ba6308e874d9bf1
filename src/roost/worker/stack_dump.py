"""Stack dumps on request of the supervisor, to see where a run hangs."""

from __future__ import annotations

import faulthandler
import os
import sys

from roost.base.system.worker_protocol import STACKS_SIGNAL, STACKS_VARIABLE


def register() -> None:
    """Makes this process, and every process forked from it, answer `STACKS_SIGNAL` by writing the stacks of
    all its threads into the supervisor's pipe. The handler is C code, so it works where Python cannot run."""
    given = os.environ.pop(STACKS_VARIABLE, None)
    if given is not None and sys.platform == "linux":
        fd = int(given)
        os.set_inheritable(fd, False)
        faulthandler.register(STACKS_SIGNAL, file=fd, all_threads=True, chain=False)
