"""The pending and live tasks of a queue; of a repeated read only the changed ones are read again."""

from __future__ import annotations

from typing import NamedTuple

from roost.lab.queue.queue_store import QueueStore
from roost.lab.queue.task import ENDED, LIVE, PENDING, Task


class UnfinishedTasks(NamedTuple):
    """The tasks at one time, without their session plans, in the order of submission."""

    pending: list[Task]
    live: list[Task]


class UnfinishedTaskCache:
    """The tasks of one queue that have not ended, for repeated reads. A task that has not changed is the same
    object as before. Its reason may be older, as a new reason is no transition.

    Each transition is recorded as an event in the same transaction (`QueueStore`). So every committed change
    of any process is found, and a rolled back one is not.

    Args:
        store: The queue.
    """

    def __init__(self, store: QueueStore) -> None:
        self._store = store
        self._seq = 0
        self._tasks: dict[str, Task] = {}
        """In the order of submission; an ended task never comes back."""

    def refresh(self) -> UnfinishedTasks:
        """Returns the tasks as they are now."""
        seq, changed = self._store.tasks_since(self._seq)
        unfinished = self._tasks
        if changed is None:  # read after ``seq``: changes in between are read again next time
            changed = self._store.tasks(states=[PENDING, *LIVE])
            unfinished.clear()
        self._seq = seq
        for task in changed:
            before = unfinished.get(task.id)
            if task.state in ENDED:
                unfinished.pop(task.id, None)
            elif before is None or before.version != task.version:
                unfinished[task.id] = task
        tasks = unfinished.values()
        return UnfinishedTasks(
            [task for task in tasks if task.state == PENDING], [task for task in tasks if task.state in LIVE]
        )
