"""One connection to the queue, and its errors."""

from __future__ import annotations

import os
import random
import re
import resource
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from roost.base.errors import Refused, RoostError
from roost.lab.queue import database, package_roots
from roost.lab.queue.queue_store import QueueStore
from tests.lab.concurrent_processes import together
from tests.lab.queued import task
from tests.messages import Messages


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With 200 queued tasks, all of them in the file itself."""
    with QueueStore.open(tmp_path / "lab") as store:
        store.submit([task(plan={"random": os.urandom(200).hex()}) for _ in range(200)])
    return tmp_path / "lab"


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    for start in range(4096, len(data), 4096):  # the first page identifies the file
        data[start : start + 64] = bytes(byte ^ 0xFF for byte in data[start : start + 64])
    path.write_bytes(data)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def replace(path: Path) -> None:
    path.write_bytes(b"something else " * 1000)


def empty(path: Path) -> None:
    package_roots.add(path.parent, [path.parent / "runs" / "one"])  # as `submit` does
    os.truncate(path, 0)


@pytest.mark.parametrize("damage", [flip, cut, replace, empty])
def test_a_damaged_queue_is_refused_with_the_command(folder: Path, damage: Callable[[Path], None]) -> None:
    damage(folder / "lab.db")
    with (
        pytest.raises(Refused) as refused,
        QueueStore.open(folder) as store,
    ):
        store.check()
    assert refused.value.where == folder / "lab.db" and "`roost lab rebuild`" in str(refused.value)


def test_damage_found_by_a_later_read_is_reported(folder: Path) -> None:
    flip(folder / "lab.db")
    with QueueStore.open(folder) as store:
        with pytest.raises(Refused, match="roost lab rebuild"):
            store.tasks()
        with pytest.raises(Refused, match="roost lab rebuild"):
            store.submit([task()])


def test_a_row_with_invalid_values_is_damage(folder: Path, messages: Messages) -> None:
    with QueueStore.open(folder) as store:
        found = store.tasks()[0]
    connection = sqlite3.connect(folder / "lab.db")
    connection.execute("UPDATE task SET need = '{' WHERE id = ?", (found.id,))
    connection.commit()
    connection.close()
    with QueueStore.open(folder) as store, pytest.raises(Refused, match="roost lab rebuild") as refused:
        store.tasks()
    messages.check(refused.value)


def test_an_intact_queue_passes_the_check(folder: Path) -> None:
    with QueueStore.open(folder) as store:
        store.check()


def test_files_are_the_owners_alone_and_other_rights_refused(folder: Path, messages: Messages) -> None:
    with QueueStore.open(folder) as store:
        store.submit([task()])
        assert {path.stat().st_mode & 0o777 for path in folder.glob("lab.db*")} == {0o600}
    (folder / "lab.db").chmod(0o640)
    with pytest.raises(Refused) as refused:
        QueueStore.open(folder)
    assert all(fact in str(refused.value) for fact in ("640", f"`chmod 600 {folder}/lab.db`"))
    messages.check(refused.value)


def test_the_settings_of_sqlite_are_durable(folder: Path) -> None:
    connection = database.open_database(folder)
    asked = {name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in (
        "journal_mode", "synchronous", "foreign_keys", "busy_timeout")}  # fmt: skip
    connection.close()
    assert asked == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 10_000}


def test_a_full_disk_changes_nothing_and_says_so(folder: Path, messages: Messages) -> None:
    """Fault F7: the file may not grow any more."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with QueueStore.open(folder) as store:
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
            with pytest.raises(RoostError) as refused:
                store.submit([task() for _ in range(50)])
            assert refused.value.where == folder / "lab.db"
            said = str(refused.value)
            messages.check(re.sub("disk I/O error|database or disk is full", "<of sqlite>", said))
            assert len(store.tasks()) == 200
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        store.submit([task()])
        assert len(store.tasks()) == 201
        store.check()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become a user without write permission")
def test_a_file_without_write_permission_is_reported(folder: Path) -> None:
    for path in (folder, *folder.parents):
        if path.stat().st_mode & 0o055 != 0o055:  # pytest's own folders, which other users cannot enter
            path.chmod(0o755)

    def look(_folder: Path, _number: int) -> None:
        os.setgid(65534)
        os.setuid(65534)
        with pytest.raises(Refused, match=r"\b0\b"):
            QueueStore.open(folder)
        connection = sqlite3.connect(folder / "lab.db")
        with pytest.raises(Refused, match=r"lab\.db"), database.translate_errors(folder / "lab.db"):
            connection.execute("BEGIN IMMEDIATE")

    (folder / "lab.db").chmod(0o444)
    together(1, look, folder)


def test_a_queue_that_stays_locked_is_reported(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "_BUSY_TIMEOUT_SECONDS", 0.1)
    with QueueStore.open(folder) as store:
        other = sqlite3.connect(folder / "lab.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Refused, match=r"0\.1 s.*fuser"):
            store.submit([task()])
        assert len(store.tasks()) == 200, "readers do not wait"
        other.execute("ROLLBACK")
        other.close()
        store.submit([task()])


def test_a_writer_waits_for_the_lock(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = sqlite3.connect(folder / "lab.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    def commit(*_: float) -> float:
        other.execute("COMMIT")
        return 0.0

    monkeypatch.setattr(random, "uniform", commit)  # asked for how long to wait
    with QueueStore.open(folder) as store:
        (new,) = store.submit([task()])
        assert store.task(new.id) == new
    other.close()


def test_an_error_in_a_transaction_rolls_it_back(folder: Path) -> None:
    connection = database.open_database(folder)
    with pytest.raises(KeyError), database.write_transaction(connection):
        connection.execute("DELETE FROM task")
        raise KeyError
    assert connection.execute("SELECT count(*) FROM task").fetchone() == (200,)
    connection.close()


def test_a_reader_sees_one_state(folder: Path) -> None:
    reader, writer = database.open_database(folder), database.open_database(folder)
    with database.read_transaction(reader), database.read_transaction(reader):
        before = reader.execute("SELECT count(*) FROM task").fetchone()
        with database.write_transaction(writer):
            writer.execute("DELETE FROM task")
        assert reader.execute("SELECT count(*) FROM task").fetchone() == before
    assert reader.execute("SELECT count(*) FROM task").fetchone() == (0,)
    reader.close()
    writer.close()


def test_a_missing_queue_is_not_replaced_silently(tmp_path: Path, messages: Messages) -> None:
    folder = tmp_path / "lab"
    QueueStore.open(folder).close()
    (folder / "lab.db").unlink()
    QueueStore.open(folder).close()  # no task was ever submitted
    package_roots.add(folder, [tmp_path / "runs" / "a"])
    (folder / "lab.db").unlink()
    with pytest.raises(Refused, match="roost lab rebuild") as refused:
        QueueStore.open(folder)
    assert refused.value.where == folder / "lab.db"
    messages.check(refused.value)
    assert not (folder / "lab.db").exists()
