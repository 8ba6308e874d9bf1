"""The watch over the caller: ends this task when the process that waits for it is gone."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Mapping
from typing import Any

from roost.base.system import process_identity

_POLL_SECONDS = 0.5


def end_with_caller(caller: Mapping[str, Any]) -> None:
    """Starts a thread that ends this process and all its children when ``caller`` is gone. Unlike a run, an
    analysis or a check is of no use when no process waits for its result.

    Args:
        caller: Process identity of a process of this machine: ``pid``, ``start_ticks``, ``boot_id``.
    """

    supervisor = os.getppid()

    def poll() -> None:
        while process_identity.is_alive(caller["pid"], caller["start_ticks"], caller["boot_id"]):
            time.sleep(_POLL_SECONDS)
        if os.getppid() == supervisor:  # else it has ended, and this process with it
            os.kill(supervisor, signal.SIGQUIT)  # it kills its whole process tree

    threading.Thread(target=poll, name="end-with-the-caller", daemon=True).start()
