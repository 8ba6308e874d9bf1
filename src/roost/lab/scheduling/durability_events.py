"""Adds to the events of the queue that the remote copies of live tasks do not get further."""

from __future__ import annotations

from roost.base.text.timestamps import format_time
from roost.lab.queue.queue_store import QueueStore
from roost.lab.queue.task import LIVE
from roost.package.remote import remote_status
from roost.package.remote.remote_status import RemoteStatus
from roost.supervisor.monitoring.durability_watch import NOT_DURABLE_SECONDS

NOT_DURABLE = "not durable"
"""The kind of the event."""
_LOOK_SECONDS = 60.0


class DurabilityEvents:
    """Reads how far the remote copies of live tasks are.

    Args:
        store: The queue.
    """

    def __init__(self, store: QueueStore) -> None:
        self._store = store
        self._last_read = float("-inf")

    def record_new(self, now: float, *, wall: float) -> None:
        """Adds an event for each copy that does not get further, once for each time that this begins; looks
        at most once a minute.

        Args:
            now: Monotonic seconds.
            wall: Unix seconds.
        """
        if now - self._last_read < _LOOK_SECONDS:
            return
        self._last_read = now
        for task in self._store.tasks(states=LIVE):
            status = remote_status.read(task.folder)
            if status is None or not is_not_durable_for_long(status, wall):
                continue
            begin = describe_since(status)
            if not any(
                event.text.startswith(begin) for event in self._store.events(task=task.id, kind=NOT_DURABLE)
            ):
                self._store.add_event(NOT_DURABLE, describe_not_durable(status), task=task.id)


def is_not_durable_for_long(status: RemoteStatus, wall: float) -> bool:
    """Whether uploads have failed for so long that a notice is due.

    Args:
        status: How far the copy is.
        wall: Unix seconds.
    """
    return status.error_since is not None and wall - status.error_since >= NOT_DURABLE_SECONDS


def describe_since(status: RemoteStatus) -> str:
    """Returns since when uploads fail: the beginning of `describe_not_durable`, the same as long as they
    fail."""
    return f"since {format_time(status.error_since)} nothing gets into the remote copy"


def describe_not_durable(status: RemoteStatus) -> str:
    """Returns since when the remote copy does not get further, how far it is, and why."""
    return f"{describe_since(status)} ({status.url}); {remote_status.describe(status)}"
