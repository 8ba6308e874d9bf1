"""Detection of the end of a run's log and records, and of an analyzer's output, where their streams end."""

from __future__ import annotations

import time
from collections.abc import Callable

from roost.lab.queue import task_file
from roost.lab.queue.task import ENDED
from roost.operations import lab, resolve
from roost.package.package import PackageFolder

_QUIET_SECONDS = 1.0
_CHECK_SECONDS = 0.5
"""The pause between two reads of the files and the queue, per stream, however often it is polled."""


def is_run_over(package: PackageFolder) -> bool:
    """Whether a run writes nothing more: its last session has ended and no task of it waits or runs; or no
    session began and all its tasks have ended; or its package was removed.

    Raises:
        Refused: The queue cannot be opened.
    """
    try:
        sessions = package.sessions()
    except (FileNotFoundError, NotADirectoryError):  # the package was removed
        return True
    if sessions and sessions[-1].is_live:
        return False
    task_records = task_file.read_all(package.path)
    if not task_records:
        return bool(sessions)
    # Read after the sessions: a task that has ended by now has written all of them.
    if resolve.unfinished_tasks(package.path):
        return False
    return bool(sessions) or all(one.task.state in ENDED or not one.is_original for one in task_records)


def is_task_over(id: str) -> bool:
    """Whether a task has ended.

    Raises:
        NotFound: The queue has no such task any more.
        Refused: The queue cannot be opened.
    """
    with lab.open_queue() as store:
        return store.task(id).state in ENDED


class StreamEndDetector:
    """Detects the end of a stream: no data for a second, and its source is over.

    Args:
        is_over: Whether the source, a run or a task, writes nothing more.
    """

    def __init__(self, is_over: Callable[[], bool]) -> None:
        self._is_over = is_over
        self._next_check = time.monotonic() + _QUIET_SECONDS

    def data_arrived(self) -> None:
        """Postpones the next check, as more may have been written since."""
        self._next_check = time.monotonic() + _QUIET_SECONDS

    @property
    def has_ended(self) -> bool:
        """Whether the stream has ended.

        Raises:
            Refused: The queue cannot be opened.
        """
        if time.monotonic() < self._next_check:
            return False
        self._next_check = time.monotonic() + _CHECK_SECONDS
        if not self._is_over():
            return False
        self._next_check = 0.0
        return True
