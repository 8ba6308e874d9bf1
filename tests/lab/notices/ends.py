"""Tasks that have ended, in a queue without a daemon."""

from __future__ import annotations

from roost.lab.queue.queue_store import QueueStore
from roost.lab.queue.task import FAILED, RUNNING
from tests.lab.queued import task


def end(store: QueueStore, name: str = "net", state: str = FAILED, seconds: float = 60.0) -> str:
    """Submits a task, and moves it to an end state; returns its id."""
    one = task(name=name)
    store.submit([one])
    running = store.transition(store.start(one, [], None), RUNNING, session=1, started=1000.0)
    store.transition(running, state, reason="why not", started=1000.0, ended=1000.0 + seconds, exit_code=1)
    return one.id
