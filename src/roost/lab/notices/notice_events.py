"""What the daemon and the one who tells must both know: this costs the daemon no import of a network's."""

from __future__ import annotations

import os
from pathlib import Path

from roost.lab.queue.task import CRASHED, FAILED, STOPPED, SUCCEEDED
from roost.lab.scheduling.stall_events import STALLED
from roost.supervisor.notices import notice_folders

END, FAIL, STALL = "end", "fail", "stall"
EVENTS = (END, FAIL, STALL)
EVENT_OF = {SUCCEEDED: END, STOPPED: END, FAILED: FAIL, CRASHED: FAIL, STALLED: STALL}
"""What happened to a task, by the kind of the queue's event."""
WRONG_SETTINGS = 78
"""The exit code (EX_CONFIG of sysexits.h): it is of no use before the settings are others."""


def path() -> Path:
    """The file that says who is told, as `place.file` tells it."""
    return Path(notice_folders.receivers_file(os.environ))
