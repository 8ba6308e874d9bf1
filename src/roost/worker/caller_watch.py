"""Whoever waits for this process."""

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
    """From now on this process, and all that it started, ends when ``caller`` is gone: unlike a run, an
    analysis or a check is of no use when nobody waits for it.

    Args:
        caller: The identity of a process of this machine, as `sessions.identity` gives it.
    """

    def look() -> None:
        supervisor = os.getppid()
        while process_identity.is_alive(caller["pid"], caller["start_ticks"], caller["boot_id"]):
            time.sleep(_POLL_SECONDS)
        os.kill(supervisor, signal.SIGQUIT)  # the supervisor kills the whole tree, us included

    threading.Thread(target=look, name="end-with-the-caller", daemon=True).start()
