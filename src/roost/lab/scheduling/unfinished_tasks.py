"""What waits and what lives, read again only where it has changed."""

from __future__ import annotations

from typing import NamedTuple

from roost.lab.queue.queue_store import Store
from roost.lab.queue.task import ENDED, LIVE, PENDING, Task


class UnfinishedTasks(NamedTuple):
    """Of one moment, without their plans, in the order in which they were submitted."""

    pending: list[Task]
    live: list[Task]


class UnfinishedTaskCache:
    """The tasks of one queue that have not ended, for who looks again and again. One that has not changed is
    the same object as before. Its reason, which no transition goes with, may be an older one.

    Each transition is noted as an event in the same transaction (`Store`). So what was committed since the
    last look is found whoever did it, and what was taken back is not.

    Args:
        store: The queue.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._seq = 0
        self._unended: dict[str, Task] = {}
        """In the order in which they were submitted: what has ended never comes back."""

    def look(self) -> UnfinishedTasks:
        """As they are now."""
        seq, changed = self._store.tasks_since(self._seq)
        unended = self._unended
        if changed is None:  # read after ``seq``: what comes in between is seen at the next look, too
            changed = self._store.tasks(states=[PENDING, *LIVE])
            unended.clear()
        self._seq = seq
        for task in changed:
            before = unended.get(task.id)
            if task.state in ENDED:
                unended.pop(task.id, None)
            elif before is None or before.version != task.version:
                unended[task.id] = task
        tasks = unended.values()
        return UnfinishedTasks(
            [task for task in tasks if task.state == PENDING], [task for task in tasks if task.state in LIVE]
        )
