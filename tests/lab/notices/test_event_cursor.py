from __future__ import annotations

import time
from pathlib import Path

from roost.lab.notices import event_cursor
from roost.lab.notices.event_cursor import Cursor
from roost.lab.queue.queue_store import Store


def test_it_begins_where_the_settings_were_made_and_stays(tmp_path: Path) -> None:
    with Store.open(tmp_path / "lab") as store:
        store.note("a", "old")
        between = time.time()
        store.note("b", "new")
        assert Cursor.load(store) is None
        first = Cursor.begin(store, between)
        assert [event.kind for event in store.events(after=first.seq)] == ["b"]
        first.take([2], skipped=3)
        first.note_told("mail")
        found = Cursor.load(store)
        assert found is not None
        assert (found.seq, found.batch, found.skipped, found.told) == (1, [2], 3, ["mail"])
        found.move(2)
        again = Cursor.load(store)
        assert again is not None
        assert (again.seq, again.batch, again.skipped, again.told) == (2, [], 0, [])
        assert (tmp_path / "lab" / "notices.json").stat().st_mode & 0o777 == 0o600
        event_cursor.forget(store.folder)
        assert Cursor.load(store) is None


def test_of_another_queue_it_tells_the_time_alone(tmp_path: Path) -> None:
    folder = tmp_path / "lab"
    with Store.open(folder) as store:
        for _ in range(5):
            store.note("a", "")
        Cursor.begin(store, time.time()).move(3)
    for file in folder.glob("lab.db*"):
        file.rename(tmp_path / file.name)
    with Store.open(folder) as store:
        store.note("a", "")
        assert Cursor.load(store) is None
        assert Cursor.begin(store, 0.0).seq == 0


def test_what_nobody_has_written_is_none(tmp_path: Path) -> None:
    with Store.open(tmp_path / "lab") as store:
        for text in ("", "[1]", '{"queue": 1}', "[" * 5000):
            (store.folder / "notices.json").write_text(text)
            assert Cursor.load(store) is None
