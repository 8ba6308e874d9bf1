"""The tables of the lab's queue, and how those of an older roost become these."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from roost.base.errors import Refused
from roost.lab import place

VERSION = 2

_ENVIRONMENT = """CREATE TABLE environment (
        number INTEGER PRIMARY KEY,
        digest BLOB NOT NULL UNIQUE,
        variables BLOB NOT NULL)"""

TABLES = (
    """CREATE TABLE task (
        seq INTEGER PRIMARY KEY,
        "id" TEXT NOT NULL UNIQUE,
        "name" TEXT NOT NULL,
        "package" TEXT NOT NULL,
        "user" TEXT NOT NULL,
        "state" TEXT NOT NULL,
        "reason" TEXT NOT NULL,
        "version" INTEGER NOT NULL,
        "need" TEXT NOT NULL,
        "priority" INTEGER NOT NULL,
        "submitted" REAL NOT NULL,
        "begin" REAL,
        "after" TEXT NOT NULL,
        "array" TEXT,
        "most_parallel" INTEGER,
        "held" INTEGER NOT NULL,
        "profile" TEXT NOT NULL,
        "scale" REAL,
        "attempt" INTEGER NOT NULL,
        "retries" INTEGER NOT NULL,
        "session" INTEGER,
        "started" REAL,
        "ended" REAL,
        "exit_code" INTEGER,
        "stop_asked" TEXT NOT NULL,
        "plan" BLOB NOT NULL)""",
    'CREATE INDEX task_name ON task ("name")',
    'CREATE INDEX task_package ON task ("package")',
    'CREATE INDEX task_state ON task ("state")',
    """CREATE TABLE allocation (
        task TEXT NOT NULL REFERENCES task ("id"),
        place INTEGER NOT NULL,
        card TEXT NOT NULL,
        mb INTEGER,
        PRIMARY KEY (task, card)) WITHOUT ROWID""",
    "CREATE INDEX allocation_card ON allocation (card)",
    """CREATE TABLE event (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        at REAL NOT NULL,
        task TEXT,
        kind TEXT NOT NULL,
        text TEXT NOT NULL)""",
    "CREATE INDEX event_task ON event (task)",
    """CREATE TABLE profile (
        seq INTEGER PRIMARY KEY,
        key TEXT NOT NULL,
        scale REAL,
        peak_mb REAL NOT NULL,
        overhead_mb REAL NOT NULL,
        ranks INTEGER NOT NULL,
        device TEXT NOT NULL,
        at REAL NOT NULL)""",
    "CREATE INDEX profile_key ON profile (key)",
    "CREATE TABLE setting (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    _ENVIRONMENT,
)
"""``plan`` is last: a listing, which leaves it out, does not read past it. In it stands the number of an
environment; in those of version 1 the environment itself."""

MIGRATIONS: dict[int, tuple[str, ...]] = {1: (_ENVIRONMENT,)}
"""What makes the tables of the next version of those of this one."""


def prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Makes the tables, or brings them up to date, when nobody else does; of older ones a copy is kept.

    Raises:
        Refused: A newer roost has made them.
        sqlite3.Error: They cannot be read or made.
    """
    if _version(connection) == VERSION:
        return
    with place.alone(path.parent):
        found = _version(connection)
        if found > VERSION:
            what = (
                f"this queue was made by a newer roost (its version is {found}, this roost knows {VERSION})"
            )
            fix = "install that roost again, or set ROOST_STATE to another folder"
            raise Refused(what, where=path, fix=fix)
        if found == 0:
            path.chmod(0o600)
            connection.execute("PRAGMA journal_mode = WAL")
            _apply(connection, TABLES)
        elif found < VERSION:
            _keep_copy(connection, path.with_name(f"{path.name}.version-{found}"))
            _apply(connection, [line for n in range(found, VERSION) for line in MIGRATIONS[n]])


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _apply(connection: sqlite3.Connection, lines: tuple[str, ...] | list[str]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        for line in (*lines, f"PRAGMA user_version = {VERSION}"):
            connection.execute(line)
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def _keep_copy(connection: sqlite3.Connection, path: Path) -> None:
    path.unlink(missing_ok=True)  # of a migration that was cut off
    copy = sqlite3.connect(path)
    path.chmod(0o600)
    try:
        connection.backup(copy)
    finally:
        copy.close()
