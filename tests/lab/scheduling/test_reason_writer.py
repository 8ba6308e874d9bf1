"""What tasks that wait are told of why."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from roost.devices import inventory
from roost.devices.resource_request import ResourceRequest
from roost.lab.queue.queue_store import QueueStore
from roost.lab.queue.task import LIVE, PENDING, SUCCEEDED
from roost.lab.scheduling.attempts import Attempts
from roost.lab.scheduling.reason_writer import MANY_REASONS, REWRITE_SECONDS, ReasonWriter
from roost.lab.scheduling.scheduler import Scheduler
from tests.lab.queued import alike, task
from tests.lab.scheduling.test_scheduler import Feigned


@pytest.fixture
def store(tmp_path: Path) -> Iterator[QueueStore]:
    with QueueStore.open(tmp_path / "lab") as store:
        yield store


class Queue:
    """Tasks that wait, and what is written of them."""

    def __init__(self, store: QueueStore, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
        tasks = [task() for _ in range(count)]
        self.store, self.ids = store, [one.id for one in tasks]
        store.submit(tasks)
        self.explained, self.rows = ReasonWriter(store), 0
        explain = store.set_wait_reasons

        def counted(reasons: dict[str, str]) -> None:
            self.rows += len(reasons)
            explain(reasons)

        monkeypatch.setattr(store, "set_wait_reasons", counted)

    def tell(self, reason: str, *, now: float, **others: str) -> list[str]:
        """To all, or to some others; gives the different ones of those that stand."""
        given = dict.fromkeys(self.ids, reason) | {self.ids[int(n[1:])]: one for n, one in others.items()}
        self.explained.write(given, now=now)
        return sorted({one.reason for one in self.store.tasks()})


def test_a_few_are_told_at_once_and_only_what_is_new(
    store: QueueStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = Queue(store, 3, monkeypatch)
    assert queue.tell("cards: (GPU 0: a)", now=0.0) == ["cards: (GPU 0: a)"] and queue.rows == 3
    assert queue.tell("cards: (GPU 0: a)", now=0.0, n1="held: x") == ["cards: (GPU 0: a)", "held: x"]
    assert queue.rows == 4
    assert queue.tell("cards: (GPU 0: b)", now=0.1) == ["cards: (GPU 0: b)"]
    assert queue.explained.seconds_until_write(0.1) == math.inf


def test_many_are_told_other_details_now_and_then(store: QueueStore, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = Queue(store, MANY_REASONS + 2, monkeypatch)
    for number in range(50):
        queue.tell(f"cards: {number}", now=100.0 + number / 10)
    assert {one.reason for one in store.tasks()} == {"cards: 1"} and queue.rows == 2 * (MANY_REASONS + 2)
    assert queue.explained.seconds_until_write(104.9) == pytest.approx(REWRITE_SECONDS - 4.8)
    assert queue.tell("cards: 50", now=105.0, n7="held: until") == ["cards: 1", "held: until"], "another word"
    assert queue.tell("cards: 50", now=106.0, n7="cards: 50") == ["cards: 1", "cards: 50"]
    assert queue.tell("cards: 51", now=100.1 + REWRITE_SECONDS) == ["cards: 51"], "nothing stays behind"
    assert queue.explained.seconds_until_write(200.0) == math.inf


def test_what_the_queue_has_taken_away_is_told_again(
    store: QueueStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = Queue(store, MANY_REASONS + 2, monkeypatch)
    for reason in ("cards: a", "cards: b"):
        queue.tell(reason, now=0.0)
    queue.explained.forget(queue.ids[3])
    assert queue.tell("cards: c", now=1.0) == ["cards: b", "cards: c"]
    queue.explained.clear()
    assert queue.explained.seconds_until_write(1.0) == math.inf and queue.tell("cards: b", now=1.0) == [
        "cards: b"
    ]


def test_a_pass_that_leaves_some_untold_plans_the_next_one(store: QueueStore) -> None:
    """Tasks of the CPU: nothing else would make it look again before one ends."""
    store.set_setting("rules", {"cores": 3})
    store.submit([task(name=f"n{n}", need=ResourceRequest(cores=2)) for n in range(MANY_REASONS + 6)])
    executor, patience, told = Feigned(), list[float | None](), []
    with closing(Attempts(store, executor, alike)) as attempts:
        scheduler = Scheduler(store, executor, attempts, inventory.read_cards)
        for _ in range(4):
            attempts.refresh()
            patience.append(scheduler.run())
            executor.over |= {one.id: SUCCEEDED for one in store.tasks(states=LIVE)}
            told.append({one.reason.partition("(")[2] for one in store.tasks(states=[PENDING])})
        scheduler.close()
    assert told == [{"n0 has 2)"}, {"n1 has 2)"}, {"n1 has 2)"}, {"n1 has 2)"}]
    assert patience[:2] == [math.inf, math.inf]
    assert all(seconds is not None and seconds <= REWRITE_SECONDS for seconds in patience[2:])
