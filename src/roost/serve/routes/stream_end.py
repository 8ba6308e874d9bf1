"""When a stream of a run ends."""

from __future__ import annotations

import time

from roost.lab.queue import task_file
from roost.lab.queue.task import ENDED
from roost.operations import resolve
from roost.package.package import PackageFolder

_QUIET_SECONDS = 1.0
_CHECK_SECONDS = 0.5
"""So often the files and the queue are parameters, however many look."""


def is_run_over(package: PackageFolder) -> bool:
    """Whether nothing more comes of a run: its last session has ended, and no task of it waits or runs; or
    it never began, and all its tasks have ended; or it is gone.

    Raises:
        Refused: The queue cannot be opened.
    """
    try:
        sessions = package.sessions()
    except (FileNotFoundError, NotADirectoryError):  # somebody has removed it
        return True
    if sessions and sessions[-1].state in ("starting", "running"):
        return False
    told = task_file.read_all(package.path)
    if not told:
        return bool(sessions)
    # Asked after the sessions: a task that has ended by now has written all of them.
    if resolve.unfinished_tasks(package.path):
        return False
    return bool(sessions) or all(one.task.state in ENDED or not one.is_original for one in told)


class RunEndDetector:
    """Tells that a stream has ended: nothing has come for a moment, and the run is over.

    Args:
        package: The run.
    """

    def __init__(self, package: PackageFolder) -> None:
        self._package = package
        self._next_check = time.monotonic() + _QUIET_SECONDS

    def data_arrived(self) -> None:
        """Something has come: more may have been written meanwhile."""
        self._next_check = time.monotonic() + _QUIET_SECONDS

    @property
    def has_ended(self) -> bool:
        """Whether it has.

        Raises:
            Refused: As `is_run_over`.
        """
        if time.monotonic() < self._next_check:
            return False
        self._next_check = time.monotonic() + _CHECK_SECONDS
        if not is_run_over(self._package):
            return False
        self._next_check = 0.0
        return True
