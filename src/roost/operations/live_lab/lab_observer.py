"""Finds what has changed in the lab, cheaply enough to look ten times a second.

Sources: the queue (its data version says whether anything was written), the progress records and the ends of
the records of running sessions, the samples of the machine, the leases and the driver. The first call of
`LabObserver.poll` returns everything, as do calls after the queue was created again.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import msgspec

from roost.base.errors import RoostError
from roost.base.system import state_folder
from roost.lab.background import daemon_presence
from roost.lab.policy.policy_state import Rules
from roost.lab.queue import database
from roost.lab.queue.queue_store import QueueStore
from roost.lab.queue.task import LIVE, PENDING, Task
from roost.lab.scheduling.site_rules import default_host
from roost.operations.live_lab.card_watch import CardWatch
from roost.operations.live_lab.expected_starts import MAX_PENDING, QueueForecast, expected_starts
from roost.operations.live_lab.lab_change import ExpectedStarts, LabChange, LabReset, LabSummary
from roost.operations.live_lab.queue_watch import JournalReader, QueueWatch
from roost.operations.live_lab.run_watch import RunWatch

POLL_SECONDS = 0.1
"""The pause between two polls that the observer is made for."""
_RUN_SECONDS, _CARD_SECONDS, _START_SECONDS, _QUEUE_SECONDS = 0.5, 1.0, 5.0, 1.0
"""The pace of progress and metrics, of the cards, of the expected starts, and of a look at the queue's file,
or at a queue that cannot be read."""
_SECONDS_PER_RUN = 0.005
"""With more than a hundred running tasks, their progress is read less often: no eye follows them all."""
_PAUSE_PER_COST = 100
"""The expected starts are estimated again after at least this many times what it took: 1 % of a core."""


class LabObserver:
    """The observer of the lab of this user, for one thread.

    Args:
        read_journal: Reads the journal of the server; None: there is none.
    """

    def __init__(self, *, read_journal: JournalReader | None = None) -> None:
        self._read_journal = read_journal
        self._folder = state_folder.lab_folder()
        self._queue: QueueWatch | None = None
        self._store: QueueStore | None = None
        self._file = ""
        """The identity of the opened queue file."""
        self._trouble: str | None = None
        self._runs, self._cards = RunWatch(), CardWatch()
        self._next = dict.fromkeys(("queue", "runs", "cards", "starts"), 0.0)
        self._starts: dict[str, float] = {}
        self._is_first = True

    def close(self) -> None:
        """Closes the files and ends the thread that asks the driver."""
        self._close_queue()
        self._cards.close()

    def poll(self) -> list[LabChange]:
        """Returns what has changed since the last call; the first call, and each after the queue was created
        again or could not be read, begins with a `LabReset` and returns everything."""
        now = time.monotonic()
        found: list[LabChange] = []
        if self._is_first:
            self._is_first = False
            found += self._reset()
        try:
            if self._is_due("queue", now, _QUEUE_SECONDS):
                found += self._follow_queue_file()
            if self._queue is not None:
                found += self._queue.changes(now, self._cards.cards)
                self._runs.require_fields(self._queue.changed)
                for id in self._queue.removed:
                    self._runs.forget(id)
        except RoostError as error:  # it is damaged, or is being created again
            self._close_queue()
            found = [*self._reset(), *self._report_trouble(str(error))]
        tasks = {} if self._queue is None else self._queue.tasks
        if self._is_due("cards", now, _CARD_SECONDS):
            found += self._card_changes()
        if self._is_due("runs", now, _RUN_SECONDS):
            found += self._runs.progress(tasks.values())
            self._next["runs"] = now + max(_RUN_SECONDS, _SECONDS_PER_RUN * self._runs.num_running)
        found += self._runs.fields(tasks)
        if self._is_due("starts", now, _START_SECONDS):
            found += self._start_changes(now)
        return found

    def _is_due(self, part: str, now: float, seconds: float) -> bool:
        if now < self._next[part]:
            return False
        self._next[part] = now + seconds
        return True

    # --- the queue's file

    def _reset(self) -> list[LabChange]:
        """Returns the changes after which everything is sent again."""
        self._runs, self._starts = RunWatch(), {}
        self._cards.send_again()
        self._next["cards"] = self._next["runs"] = 0.0
        return [LabReset()]

    def _follow_queue_file(self) -> Iterator[LabChange]:
        """Opens the queue if there is one, and again if it was replaced.

        Raises:
            RoostError: It cannot be opened.
        """
        path = self._folder / database.FILE_NAME
        found = daemon_presence.identity(path)
        if found == self._file and self._trouble is None:
            return
        if self._queue is not None or self._trouble is not None:
            self._close_queue()
            yield from self._reset()
        self._trouble = None
        if not database.has_existed(self._folder):  # it is not created by those who only look
            yield LabSummary(daemon=None, counts={})
            return
        self._store = QueueStore.open()
        self._file = daemon_presence.identity(path)
        self._queue = QueueWatch(self._store, self._read_journal)

    def _close_queue(self) -> None:
        if self._store is not None:
            with contextlib.suppress(RoostError):
                self._store.close()
        self._store = self._queue = None
        self._file = ""

    def _report_trouble(self, text: str) -> Iterator[LabChange]:
        self._trouble = text
        yield LabSummary(daemon=None, counts={}, trouble=text)

    # --- cards and starts

    def _card_changes(self) -> Iterator[LabChange]:
        if self._queue is None:
            return self._cards.changes(msgspec.convert(default_host(), Rules), (), {})
        live = [task for task in self._queue.tasks.values() if task.state in LIVE]
        return self._cards.changes(self._queue.rules, live, self._queue.short)

    def _start_changes(self, now: float) -> Iterator[LabChange]:
        """Yields the expected starts if they have changed by a second."""
        queue = self._queue
        starts: dict[str, float] = {}
        if queue is not None and queue.order:
            first = [queue.tasks[id] for id in queue.order[:MAX_PENDING] if id in queue.tasks]
            starts = expected_starts(self._forecast(queue, first))
            self._next["starts"] = max(self._next["starts"], now + _PAUSE_PER_COST * (time.monotonic() - now))
        starts = {id: float(round(at)) for id, at in starts.items()}
        if starts != self._starts:
            self._starts = starts
            yield ExpectedStarts(times=starts)

    def _forecast(self, queue: QueueWatch, first: list[Task]) -> QueueForecast:
        cards = self._cards.without_leased_processes()
        return QueueForecast(
            now=time.time(),
            pending=[task for task in first if task.state == PENDING],
            live=[task for task in queue.tasks.values() if task.state in LIVE],
            ends=self._runs.ends,
            cards=cards,
            other_leases=self._cards.other_leases(),
            expected=queue.expected(first, cards),
            rules=queue.rules,
        )
