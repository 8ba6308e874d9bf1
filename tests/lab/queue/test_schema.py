"""The tables and their migrations."""

from __future__ import annotations

import json
import os
import random
import sqlite3
from pathlib import Path

import pytest

from roost.base.errors import Refused
from roost.lab.queue import schema, task_rows
from roost.lab.queue.queue_store import QueueStore
from roost.lab.queue.task import FAILED
from tests.lab.concurrent_processes import together
from tests.lab.queued import PLAN, SECRET, TOLD, stands_in, task
from tests.messages import Messages

MIGRATION = ("ALTER TABLE task ADD COLUMN colour TEXT", "UPDATE task SET colour = 'red'")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With one queued task."""
    with QueueStore.open(tmp_path / "lab") as store:
        store.submit([task(name="a")])
    return tmp_path / "lab"


def ask(path: Path, sql: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def test_a_queue_of_a_newer_roost_is_refused_and_stays(folder: Path, messages: Messages) -> None:
    ask(folder / "lab.db", "PRAGMA user_version = 7")
    with pytest.raises(Refused, match=r"\b7\b") as refused:
        QueueStore.open(folder)
    assert refused.value.where == folder / "lab.db"
    messages.check(refused.value.message.replace(f"{schema.VERSION}", "<ours>"))
    messages.check(refused.value.fix)
    assert ask(folder / "lab.db", "SELECT name FROM task") == [("a",)]


def cut_off(connection: sqlite3.Connection) -> None:
    raise KeyboardInterrupt


def test_an_older_one_is_copied_and_migrated(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "VERSION", schema.VERSION + 1)
    monkeypatch.setattr(schema, "MIGRATIONS", {schema.VERSION - 1: MIGRATION})
    before = schema.VERSION - 1
    (folder / f"lab.db.version-{before}").write_text("of a migration that was cut off")
    copy = folder / f"lab.db.version-{before}"
    with monkeypatch.context() as patch:
        patch.setattr(schema, "_check_and_vacuum", cut_off)
        with pytest.raises(KeyboardInterrupt):
            QueueStore.open(folder)
    assert copy.stat().st_mode & 0o777 == 0o600
    assert ask(copy, "PRAGMA user_version") == [(before,)]
    assert ask(copy, "SELECT name FROM task") == [("a",)]
    for _ in range(2):
        with QueueStore.open(folder) as store:
            assert store.find("a").name == "a"
        assert not copy.exists(), "the queue was read whole"
    assert ask(folder / "lab.db", "SELECT name, colour FROM task") == [("a", "red")]


def test_a_migration_that_fails_changes_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "VERSION", schema.VERSION + 1)
    monkeypatch.setattr(schema, "MIGRATIONS", {schema.VERSION - 1: (*MIGRATION, "no sql")})
    with pytest.raises(Refused):
        QueueStore.open(folder)
    monkeypatch.undo()
    with QueueStore.open(folder) as store:
        assert "colour" not in str(ask(folder / "lab.db", "SELECT sql FROM sqlite_master"))
        assert store.find("a").name == "a"


def test_a_queue_of_the_first_version_is_migrated(tmp_path: Path) -> None:
    """Its plans hold their environments, also after the end, and moved data is still in the file."""
    before, like = task(name="before"), task(name="like", sweep="s")
    ended = task(name="ended", state=FAILED, plan=SECRET)
    large = {**PLAN, "env": {"TOKEN": random.Random(1).randbytes(50_000).hex()}}
    with QueueStore.open(tmp_path / "lab"):
        pass
    connection = sqlite3.connect(tmp_path / "lab" / "lab.db")
    connection.execute("PRAGMA secure_delete = OFF")
    newer = ("after_any", "sweep_name", "kind", "session_folder")
    columns = [name for name in task_rows.COLUMNS if name not in newer]
    names = ", ".join(f'"{name}"' for name in columns).replace("sweep", "array")
    marks = ", ".join("?" * (len(columns) + 1))
    with connection:
        for line in (
            "DROP INDEX task_sweep",
            'ALTER TABLE task RENAME COLUMN "sweep" TO "array"',
            "DROP INDEX task_environment",
            "ALTER TABLE task DROP COLUMN environment",
            *(f"ALTER TABLE task DROP COLUMN {name}" for name in newer),
            "DROP TABLE environment",
        ):
            connection.execute(line)
        for one in (before, like, ended, task(name="moved", plan=large)):
            known = task_rows.column_values(one)
            values = (
                *(known[name] or None if name == "seq" else known[name] for name in columns),
                task_rows.compress_json(one.plan),
            )
            connection.execute(f'INSERT INTO task ({names}, "plan") VALUES ({marks})', values)
        connection.execute("PRAGMA user_version = 1")
    with connection:
        connection.execute("DELETE FROM task WHERE name = 'moved'")
    connection.close()
    assert all(stands_in(tmp_path / "lab", task_rows.compress_json(plan)) for plan in (SECRET, large))
    with QueueStore.open(tmp_path / "lab") as store:
        assert not any(stands_in(tmp_path / "lab", task_rows.compress_json(plan)) for plan in (SECRET, large))
        assert [store.find(one.name).plan for one in (before, like, ended)] == [PLAN, PLAN, TOLD]
        assert [one.name for one in store.tasks(sweeps=["s"])] == ["like"]
        first = store.find("before")
        assert first.after_any == ()
        store.submit([task(name="after", after_any=(first.id,))])
        assert store.find("after").plan == PLAN and store.find("after").after_any == (first.id,)
        assert int(store.identity(), 16), "a queue of an older roost is given one, too"
        store.submit([task(name="try-1", sweep="t", sweep_name="try")])
        assert [one.sweep_name for one in store.find_all("try")] == ["try"] and first.sweep_name is None
        assert ask(store.path, "SELECT count(*) FROM environment") == [(1,)]


def test_a_queue_of_version_4_has_trainings_and_commands(tmp_path: Path) -> None:
    """Of a task without a plan, as a rebuild leaves an ended one, the package says what it was."""
    made = {"kind": "command", **{name: str(tmp_path / name) for name in ("ended", "gone")}}
    (tmp_path / "ended").mkdir()
    (tmp_path / "ended" / "request.json").write_text(json.dumps(made))
    tasks = [
        task(name="train"),
        task(name="command", plan={**PLAN, "is_command": True}),
        task(name="ended", state=FAILED, plan={}, package=made["ended"]),
        task(name="gone", state=FAILED, plan={}, package=made["gone"]),
    ]
    with QueueStore.open(tmp_path / "lab") as store:
        store.submit(tasks[:2])
        store.restore(tasks[2:])
    for line in ("ALTER TABLE task DROP COLUMN kind", "ALTER TABLE task DROP COLUMN session_folder"):
        ask(tmp_path / "lab" / "lab.db", line)
    ask(tmp_path / "lab" / "lab.db", "PRAGMA user_version = 4")
    with QueueStore.open(tmp_path / "lab") as store:
        found = store.tasks()
        assert [(one.name, one.kind, one.label) for one in found] == [
            ("train", "train", "T_1"),
            ("command", "command", "C_2"),
            ("ended", "command", "C_3"),
            ("gone", "train", "T_4"),
        ]
        assert {one.session_folder for one in found} == {""}
        assert store.find("command").plan == {**PLAN, "is_command": True}


@pytest.mark.parametrize("request_file", [b"", b"[]", b"{", b'{"kind": []}', b"\xff", b"[" * 100_000, None])
def test_a_damaged_package_does_not_stop_the_migration_of_version_4(
    tmp_path: Path, request_file: bytes | None
) -> None:
    package = tmp_path / "package"
    package.mkdir()
    if request_file is None:
        os.mkfifo(package / "request.json")
    else:
        (package / "request.json").write_bytes(request_file)
    ended = {"state": FAILED, "plan": {}}
    with QueueStore.open(tmp_path / "lab") as store:
        store.submit([task(name="good")])
        store.restore([task(name=name, package=name, **ended) for name in (str(package), "\0", "x" * 5000)])
    for column in ("kind", "session_folder"):
        ask(tmp_path / "lab" / "lab.db", f"ALTER TABLE task DROP COLUMN {column}")
    ask(tmp_path / "lab" / "lab.db", "PRAGMA user_version = 4")
    with QueueStore.open(tmp_path / "lab") as store:
        assert [one.label for one in store.tasks()] == ["T_1", "T_2", "T_3", "T_4"]


def test_a_rebuilt_queue_has_another_identity(tmp_path: Path) -> None:
    found = []
    for _ in range(3):
        with QueueStore.open(tmp_path / "lab") as store:
            found.append(store.identity())
        with QueueStore.open(tmp_path / "lab") as store:
            assert store.identity() == found[-1] and len(found[-1]) == 8
        for file in (tmp_path / "lab").glob("lab.db*"):
            file.unlink()
    assert len(set(found)) == 3


def test_a_database_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lab").mkdir(mode=0o700)
    ask(tmp_path / "lab" / "lab.db", "CREATE TABLE task (mine)")
    with pytest.raises(Refused, match="`roost lab rebuild`"):
        QueueStore.open(tmp_path / "lab")


def _open(folder: Path, number: int) -> None:
    with QueueStore.open(folder) as store:
        store.submit([task(name=f"by {number}")])


def test_concurrent_first_opens_create_one_queue(tmp_path: Path) -> None:
    together(8, _open, tmp_path / "lab")
    with QueueStore.open(tmp_path / "lab") as store:
        assert {task.name for task in store.tasks()} == {f"by {number}" for number in range(8)}
        assert ask(store.path, "PRAGMA journal_mode") == [("wal",)]
        store.check()
