"""The process that sends the notices of a queue's new events, and ends.

The daemon starts it as ``python -m roost.lab.notices.queue_notices FOLDER``, so that the daemon never waits
for a network.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from roost.base import durable
from roost.base.errors import NotFound, RoostError
from roost.lab.notices import delivery, notice_events, notice_text, receivers
from roost.lab.notices.event_cursor import NoticeCursor
from roost.lab.notices.notice_events import EVENT_BY_KIND, INVALID_SETTINGS_EXIT_CODE
from roost.lab.notices.receivers import NoticeSettings
from roost.lab.queue.history import QueueEvent
from roost.lab.queue.queue_store import QueueStore
from roost.lab.queue.task import STOPPED, Task

NOT_SENT = "not told"  # Stored name
"""The kind of the queue event that records a notice that could not be sent."""
_EVENTS_PER_READ = 1000
_MAX_SINGLE_NOTICES = 5
"""More events than this are sent as one notice: a sweep must not send five hundred mails."""
_MAX_EVENTS_IN_NOTICE = 100


def send_pending(
    store: QueueStore,
    settings: NoticeSettings,
    cursor: NoticeCursor,
    *,
    pauses: Sequence[float] = delivery.RETRY_PAUSES,
) -> None:
    """Sends the notices of all events after the cursor.

    A receiver gets a notice twice only if this process is killed between a response and its record in the
    cursor.

    Args:
        store: The queue.
        settings: The receivers and the events that they get.
        cursor: The last event that is done; it is advanced.
        pauses: As in `delivery.deliver`.

    Raises:
        RoostError: The queue cannot be read or written.
        OSError: The cursor cannot be written.
    """
    down: set[str] = set()
    _send_batch(store, settings, cursor, down, pauses)
    while events := store.events(after=cursor.seq, limit=_EVENTS_PER_READ):
        seqs = [event.seq for event in events if _needs_notice(store, settings, event)]
        for batch, skipped in _batches(seqs):
            cursor.set_batch(batch, skipped=skipped)
            _send_batch(store, settings, cursor, down, pauses)
        cursor.advance(events[-1].seq)


def _needs_notice(store: QueueStore, settings: NoticeSettings, event: QueueEvent) -> bool:
    if event.kind not in EVENT_BY_KIND or (task := _task_of(store, event)) is None:
        return False
    if event.kind == STOPPED and task.attempt == 0:  # it never started, and the user who stopped it knows
        return False
    return settings.selects(EVENT_BY_KIND[event.kind], notice_text.duration_seconds(event, task))


def _task_of(store: QueueStore, event: QueueEvent) -> Task | None:
    try:
        return store.task(event.task) if event.task is not None else None
    except NotFound:  # of an older queue, before a rebuild
        return None


def _batches(seqs: list[int]) -> Iterator[tuple[list[int], int]]:
    """Yields the events of each notice, and the number of further events that it only counts."""
    if len(seqs) <= _MAX_SINGLE_NOTICES:
        yield from (([seq], 0) for seq in seqs)
    else:
        yield seqs[-_MAX_EVENTS_IN_NOTICE:], max(0, len(seqs) - _MAX_EVENTS_IN_NOTICE)


def _send_batch(
    store: QueueStore, settings: NoticeSettings, cursor: NoticeCursor, down: set[str], pauses: Sequence[float]
) -> None:
    """Sends the notice that the cursor holds, if there is one."""
    if not cursor.batch:
        return
    events = store.events(after=cursor.batch[0] - 1, limit=_EVENTS_PER_READ)
    found = [
        (event, task)
        for event in events
        if event.seq in cursor.batch and (task := _task_of(store, event)) is not None
    ]
    if found:
        _send_to_all(
            store, settings, cursor, notice_text.compose(found, skipped=cursor.skipped), down, pauses
        )
    cursor.advance(cursor.batch[-1])


def _send_to_all(
    store: QueueStore,
    settings: NoticeSettings,
    cursor: NoticeCursor,
    notice: notice_text.Notice,
    down: set[str],
    pauses: Sequence[float],
) -> None:
    """Sends a notice to each receiver that was not tried yet.

    Args:
        down: The receivers that could not be reached before; they get one try.
    """
    for name, receiver in settings.receivers.items():
        if name in cursor.notified:
            continue
        why = delivery.deliver(receiver, notice, pauses=() if name in down else pauses)
        if why:
            down.add(name)
            task = notice.tasks[0]["id"] if len(notice.tasks) == 1 else None
            store.add_event(NOT_SENT, f"{name} ({receiver.kind}): {why}; `roost notices --test`", task=task)
        else:
            down.discard(name)
        cursor.add_notified(name)


def main() -> int:
    """``queue_notices FOLDER``: sends the notices of the queue in a folder."""
    folder, file = Path(sys.argv[1]), notice_events.settings_path()
    fd = durable.open_append(folder / "notices.lock")
    fcntl.flock(fd, fcntl.LOCK_EX)  # the process of a daemon that was killed may still send
    try:
        with QueueStore.open(folder) as store:
            # Created before the settings are read: events while these have an error are sent after it is
            # corrected.
            cursor = NoticeCursor.load(store) or NoticeCursor.create(store, file.stat().st_ctime)
            try:
                settings = receivers.read_settings(file)
            except RoostError as error:
                last = store.events(kind=NOT_SENT)[-1:]
                if not last or last[0].text != str(error):
                    store.add_event(NOT_SENT, str(error))
                return INVALID_SETTINGS_EXIT_CODE
            send_pending(store, settings, cursor)
    except (
        RoostError,
        OSError,
    ) as error:  # such as a full disk: a notice that cannot be recorded is not sent
        print(f"notices: {error}", file=sys.stderr, flush=True)
        return error.exit_code if isinstance(error, RoostError) else 1
    finally:
        os.close(fd)
    return 0


if __name__ == "__main__":
    sys.exit(main())
