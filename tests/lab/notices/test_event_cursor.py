from __future__ import annotations

import time
from pathlib import Path

from roost.lab.notices import event_cursor
from roost.lab.notices.event_cursor import NoticeCursor
from roost.lab.queue.queue_store import QueueStore


def test_it_begins_where_the_settings_were_made_and_stays(tmp_path: Path) -> None:
    with QueueStore.open(tmp_path / "lab") as store:
        store.add_event("a", "old")
        between = time.time()
        store.add_event("b", "new")
        assert NoticeCursor.load(store) is None
        first = NoticeCursor.create(store, between)
        assert [event.kind for event in store.events(after=first.seq)] == ["b"]
        first.set_batch([2], skipped=3)
        first.add_notified("mail")
        found = NoticeCursor.load(store)
        assert found is not None
        assert (found.seq, found.batch, found.skipped, found.notified) == (1, [2], 3, ["mail"])
        found.advance(2)
        again = NoticeCursor.load(store)
        assert again is not None
        assert (again.seq, again.batch, again.skipped, again.notified) == (2, [], 0, [])
        assert (tmp_path / "lab" / "notices.json").stat().st_mode & 0o777 == 0o600
        event_cursor.discard(store.folder)
        assert NoticeCursor.load(store) is None


def test_the_cursor_of_another_queue_gives_only_its_time(tmp_path: Path) -> None:
    folder = tmp_path / "lab"
    with QueueStore.open(folder) as store:
        for _ in range(5):
            store.add_event("a", "")
        NoticeCursor.create(store, time.time()).advance(3)
    for file in folder.glob("lab.db*"):
        file.rename(tmp_path / file.name)
    with QueueStore.open(folder) as store:
        store.add_event("a", "")
        assert NoticeCursor.load(store) is None
        assert NoticeCursor.create(store, 0.0).seq == 0


def test_an_invalid_cursor_file_counts_as_none(tmp_path: Path) -> None:
    with QueueStore.open(tmp_path / "lab") as store:
        for text in ("", "[1]", '{"queue": 1}', "[" * 5000):
            (store.folder / "notices.json").write_text(text)
            assert NoticeCursor.load(store) is None
