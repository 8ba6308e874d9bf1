"""Names that the daemon and the sending processes share, in a module that costs the daemon no import of
network code."""

from __future__ import annotations

import os
from pathlib import Path

from roost.lab.queue.task import CRASHED, FAILED, STOPPED, SUCCEEDED
from roost.lab.scheduling.durability_events import NOT_DURABLE
from roost.lab.scheduling.stall_events import STALLED
from roost.supervisor.notices import notice_folders

END, FAIL, STALL = "end", "fail", "stall"
EVENTS = (END, FAIL, STALL)
EVENT_BY_KIND = {
    SUCCEEDED: END,
    STOPPED: END,
    FAILED: FAIL,
    CRASHED: FAIL,
    STALLED: STALL,
    NOT_DURABLE: STALL,
}
"""The notice event for each kind of queue event that sends a notice."""
INVALID_SETTINGS_EXIT_CODE = 78
"""The exit code of a sending process whose settings have an error (EX_CONFIG of sysexits.h): another start is
useless until the settings file changes."""


def settings_path() -> Path:
    """Returns the path of the settings file, as `notice_folders.receivers_file` defines it."""
    return Path(notice_folders.receivers_file(os.environ))
