"""Tells what the queue's events say and nobody was told yet, and ends; started by the daemon as
``python -m roost.lab.notices.queue_notices FOLDER``, so that this never waits for a network."""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from roost.base import durable
from roost.base.errors import NotFound, RoostError
from roost.lab.notices import delivery, notice_events, notice_text, receivers
from roost.lab.notices.event_cursor import Cursor
from roost.lab.notices.notice_events import EVENT_OF, WRONG_SETTINGS
from roost.lab.notices.receivers import Settings
from roost.lab.queue.history import Event
from roost.lab.queue.queue_store import Store
from roost.lab.queue.task import STOPPED, Task

NOT_TOLD = "not told"
"""The kind of the event."""
_AT_ONCE = 1000
_MOST_ALONE = 5
"""If more has happened it is told together: nobody wants five hundred letters of one sweep."""
_MOST_TOGETHER = 100


def tell(store: Store, asked: Settings, cursor: Cursor, *, pauses: Sequence[float] = delivery.PAUSES) -> None:
    """Tells all that has happened since the last time. Who was told once is told no second time, unless we
    are killed between an answer and the note of it.

    Args:
        store: The queue.
        asked: The settings.
        cursor: How far it was told.
        pauses: As of `sending.deliver`.

    Raises:
        RoostError: The queue cannot be read, or not be written.
        OSError: How far it was told cannot be noted.
    """
    down: set[str] = set()
    _tell_taken(store, asked, cursor, down, pauses)
    while events := store.events(after=cursor.seq, most=_AT_ONCE):
        found = [event.seq for event in events if _is_wanted(store, asked, event)]
        for batch, skipped in _batches(found):
            cursor.take(batch, skipped=skipped)
            _tell_taken(store, asked, cursor, down, pauses)
        cursor.move(events[-1].seq)


def _is_wanted(store: Store, asked: Settings, event: Event) -> bool:
    if event.kind not in EVENT_OF or (task := _task_of(store, event)) is None:
        return False
    if event.kind == STOPPED and task.attempt == 0:  # it waited only, and somebody knows that he stopped it
        return False
    return asked.want(EVENT_OF[event.kind], notice_text.seconds(event, task))


def _task_of(store: Store, event: Event) -> Task | None:
    try:
        return store.task(event.task) if event.task is not None else None
    except NotFound:  # of a queue that was made anew
        return None


def _batches(found: list[int]) -> Iterator[tuple[list[int], int]]:
    """What is told together, and how many more there were."""
    if len(found) <= _MOST_ALONE:
        yield from (([one], 0) for one in found)
    else:
        yield found[-_MOST_TOGETHER:], max(0, len(found) - _MOST_TOGETHER)


def _tell_taken(
    store: Store, asked: Settings, cursor: Cursor, down: set[str], pauses: Sequence[float]
) -> None:
    """Tells of the notice that the cursor holds, if it holds one."""
    if not cursor.batch:
        return
    events = store.events(after=cursor.batch[0] - 1, most=_AT_ONCE)
    found = [
        (event, task)
        for event in events
        if event.seq in cursor.batch and (task := _task_of(store, event)) is not None
    ]
    if found:
        _tell_all(store, asked, cursor, notice_text.of(found, skipped=cursor.skipped), down, pauses)
    cursor.move(cursor.batch[-1])


def _tell_all(
    store: Store,
    asked: Settings,
    cursor: Cursor,
    notice: notice_text.Notice,
    down: set[str],
    pauses: Sequence[float],
) -> None:
    """
    Args:
        down: Who could not be told before: he gets one try.
    """
    for name, receiver in asked.receivers.items():
        if name in cursor.told:
            continue
        why = delivery.deliver(receiver, notice, pauses=() if name in down else pauses)
        if why:
            down.add(name)
            task = notice.tasks[0]["id"] if len(notice.tasks) == 1 else None
            store.note(NOT_TOLD, f"{name} ({receiver.kind}): {why}; `roost notices --test`", task=task)
        else:
            down.discard(name)
        cursor.note_told(name)


def main() -> int:
    """``tell.py FOLDER``."""
    folder, file = Path(sys.argv[1]), notice_events.path()
    fd = durable.open_append(folder / "notices.lock")
    fcntl.flock(fd, fcntl.LOCK_EX)  # of a daemon that was killed one may be at it still
    try:
        with Store.open(folder) as store:
            # Before they are read: what happens while they are wrong is told once they are right.
            cursor = Cursor.load(store) or Cursor.begin(store, file.stat().st_ctime)
            try:
                asked = receivers.read(file)
            except RoostError as error:
                last = store.events(kind=NOT_TOLD)[-1:]
                if not last or last[0].text != str(error):
                    store.note(NOT_TOLD, str(error))
                return WRONG_SETTINGS
            tell(store, asked, cursor)
    except (RoostError, OSError) as error:  # such as a full disk: nobody is told what could not be noted
        print(f"notices: {error}", file=sys.stderr, flush=True)
        return error.exit_code if isinstance(error, RoostError) else 1
    finally:
        os.close(fd)
    return 0


if __name__ == "__main__":
    sys.exit(main())
