"""What the daemon and the one who tells must both know: this costs the daemon no import of a network's."""

from __future__ import annotations

import os
from pathlib import Path

from roost.lab.stalls import STALLED
from roost.lab.task import CRASHED, FAILED, STOPPED, SUCCEEDED

END, FAIL, STALL = "end", "fail", "stall"
EVENTS = (END, FAIL, STALL)
EVENT_OF = {SUCCEEDED: END, STOPPED: END, FAILED: FAIL, CRASHED: FAIL, STALLED: STALL}
"""What happened to a task, by the kind of the queue's event."""
WRONG_SETTINGS = 78
"""The exit code (EX_CONFIG of sysexits.h): it is of no use before the settings are others."""


def path() -> Path:
    """``notices.yaml`` in ``$XDG_CONFIG_HOME/roost``, else in ``~/.config/roost``; it need not exist."""
    home = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    return (home if home.is_absolute() else Path.home() / ".config") / "roost" / "notices.yaml"
