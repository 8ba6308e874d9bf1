"""Events, memory profiles and settings of a queue."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from roost.lab.queue import history
from roost.lab.queue.history import MemoryPeak
from roost.lab.queue.queue_store import QueueStore
from tests.lab.queued import task


@pytest.fixture
def store(tmp_path: Path) -> Iterator[QueueStore]:
    with QueueStore.open(tmp_path / "lab") as store:
        yield store


def test_events_come_in_order_from_where_one_had_read(store: QueueStore) -> None:
    before = time.time()
    store.add_event("begun", "the daemon")
    store.submit([task(id="a")])
    store.add_event("trouble", "no \udcff UTF-8", task="a")
    first, *rest = store.events()
    assert (first.task, first.kind, first.text) == (None, "begun", "the daemon")
    assert before - 1 <= first.at <= time.time() + 1
    assert [(event.kind, event.text) for event in rest] == [("pending", ""), ("trouble", "no ? UTF-8")]
    assert store.events(after=first.seq) == rest
    assert store.events(task="a") == rest
    assert store.events(task="a", after=rest[0].seq) == rest[1:]


def test_the_oldest_events_are_forgotten_and_numbers_never_come_twice(
    store: QueueStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "MAX_EVENTS", 5)
    for number in range(8):
        store.add_event("n", str(number))
    assert [event.text for event in store.events()] == ["3", "4", "5", "6", "7"]
    assert [event.seq for event in store.events()] == [4, 5, 6, 7, 8]


def test_peaks_are_kept_by_key_the_newest_of_them(store: QueueStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MAX_PEAKS_PER_KEY", 3)
    peaks = [MemoryPeak("k", None if n % 2 else 8.0, 100.0 + n, 300.5, 1, "H200", float(n)) for n in range(5)]
    other = MemoryPeak("other", 1.0, 5.0, 0.0, 2, "H200", 9.0)
    for peak in [other, *peaks]:
        store.add_peak(peak)
    assert store.peaks() == [other, *peaks[-3:]]


def test_of_all_peaks_the_newest_are_kept(store: QueueStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a sweep each task may have a key of its own."""
    monkeypatch.setattr(history, "MAX_PEAKS", 3)
    peaks = [MemoryPeak(f"k{n}", 8.0, 100.0, 300.5, 1, "H200", float(n)) for n in range(6)]
    for peak in peaks:
        store.add_peak(peak)
    assert store.peaks() == peaks[-3:]


def test_settings_are_plain_data_and_can_be_removed(store: QueueStore) -> None:
    assert store.settings() == {}
    store.set_setting("drained", ["GPU-0"])
    store.set_setting("delay", 1.5)
    store.set_setting("drained", ["GPU-1"])
    with QueueStore.open(store.folder) as other:
        assert other.settings() == {"drained": ["GPU-1"], "delay": 1.5}
    store.set_setting("drained", None)
    assert store.settings() == {"delay": 1.5}
    assert [event.text for event in store.events()][-1] == "drained = null"


def test_tasks_are_counted_by_state(store: QueueStore) -> None:
    tasks = [task(), task(), task(user="bob")]
    store.submit(tasks)
    store.start(tasks[0], [], None)
    assert store.state_counts() == {"pending": 2, "starting": 1}
    assert store.state_counts(user="bob") == {"pending": 1} and store.state_counts(user="carol") == {}
