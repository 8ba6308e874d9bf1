"""Tasks that are read again only where they have changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from roost.lab.queue import history, task_rows
from roost.lab.queue.queue_store import QueueStore
from roost.lab.queue.task import LIVE, PENDING, RUNNING, STOP, SUCCEEDED, Task
from roost.lab.scheduling.scheduler import UnfinishedTaskCache
from tests.lab.queued import card, task
from tests.messages import Messages


@pytest.fixture
def store(tmp_path: Path) -> Iterator[QueueStore]:
    with QueueStore.open(tmp_path / "lab") as store:
        yield store


def without_reasons(tasks: list[Task]) -> list[Task]:
    return [msgspec.structs.replace(one, reason="") for one in tasks]


def look(standing: UnfinishedTaskCache, store: QueueStore) -> dict[str, Task]:
    """What it sees, by name, which must be what stands there."""
    seen = standing.refresh()
    assert without_reasons(seen.pending) == without_reasons(store.tasks(states=[PENDING]))
    assert without_reasons(seen.live) == without_reasons(store.tasks(states=LIVE))
    return {one.name: one for one in (*seen.pending, *seen.live)}


def test_what_has_not_changed_is_the_same_object(store: QueueStore) -> None:
    standing = UnfinishedTaskCache(store)
    assert look(standing, store) == {}
    store.submit([task(name=name) for name in "abcd"])
    before = look(standing, store)
    store.set_wait_reasons({one.id: "cards: none is free" for one in before.values()})
    store.add_event("trouble", "of no consequence", task=before["a"].id)
    begun = store.start(before["b"], [card()], 4000)
    store.request_stop(before["d"].id, STOP)
    store.submit([task(name="e")])
    after = look(standing, store)
    assert sorted(after) == ["a", "b", "c", "e"]
    assert after["a"] is before["a"] and after["c"] is before["c"]
    assert after["b"].cards == ("GPU-0",) and after["b"].reserved_mb == 4000
    store.transition(store.transition(begun, RUNNING), PENDING)
    assert look(standing, store)["b"].cards == (), "in its old place"


def test_what_others_do_is_seen_and_what_is_taken_back_is_not(store: QueueStore) -> None:
    standing = UnfinishedTaskCache(store)
    store.submit([task(name="a"), task(name="b")])
    before = look(standing, store)
    with QueueStore.open(store.folder) as other:
        for writer in (store, other):
            with pytest.raises(ZeroDivisionError), writer.transaction():
                writer.change(before["a"].id, priority=7)
                writer.submit([task(name="c")])
                raise ZeroDivisionError
            assert look(standing, store)["a"] is before["a"]
        with other.transaction():
            other.change(before["a"].id, priority=3)
            assert look(standing, store)["a"] is before["a"], "it may be taken back still"
        assert look(standing, store)["a"].priority == 3
        other.transition(other.start(before["b"], [], None), RUNNING)
        assert look(standing, store)["b"].state == RUNNING
        other.transition(other.task(before["b"].id), SUCCEEDED)
    assert sorted(look(standing, store)) == ["a"]


def test_within_a_transaction_it_is_no_time_to_look(store: QueueStore, messages: Messages) -> None:
    with store.transaction(), pytest.raises(AssertionError) as refused:
        UnfinishedTaskCache(store).refresh()
    messages.check(refused.value)


def test_after_more_than_is_remembered_all_is_read_anew(
    store: QueueStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "MAX_EVENTS", 4)
    standing = UnfinishedTaskCache(store)
    store.submit([task(name=name) for name in "abc"])
    before = look(standing, store)
    store.change(before["a"].id, priority=1)
    store.request_stop(before["b"].id, STOP)
    for priority in range(2):
        store.change(before["c"].id, priority=priority)
    after = look(standing, store)
    assert after["a"].priority == 1 and "b" not in after, "just not too much"
    store.request_stop(before["a"].id, STOP)
    for priority in range(4):
        store.change(before["c"].id, priority=priority)
    assert sorted(look(standing, store)) == ["c"]


def test_a_look_reads_what_has_changed_alone(store: QueueStore, monkeypatch: pytest.MonkeyPatch) -> None:
    standing = UnfinishedTaskCache(store)
    ended, *waiting = [task() for _ in range(20)]
    store.submit([ended, *waiting])
    store.request_stop(ended.id, STOP)
    read: list[str] = []
    of_row = task_rows.task_from_row

    def noted(row: Sequence[Any], held: Mapping[str, list[tuple[str, int | None]]]) -> Task:
        read.append(row[0])
        return of_row(row, held)

    monkeypatch.setattr(task_rows, "task_from_row", noted)
    assert len(standing.refresh().pending) == len(read) == 19, "not what has ended"
    store.change(waiting[3].id, priority=1)
    read.clear()
    for _ in range(2):
        assert len(standing.refresh().pending) == 19
    assert read == [waiting[3].id]
