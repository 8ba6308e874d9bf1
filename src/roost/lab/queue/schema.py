"""The tables of the lab's queue, and how those of an older roost become these."""

# Not durable: removes the copy that a migration that was cut off had begun

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

from roost.base.errors import Refused
from roost.base.system import state_folder
from roost.lab.queue import task_rows

VERSION = 4

_ENVIRONMENT = """CREATE TABLE environment (
        number INTEGER PRIMARY KEY,
        digest BLOB NOT NULL UNIQUE,
        variables BLOB NOT NULL)"""
_OF_A_TASK = "environment INTEGER REFERENCES environment (number)"
_AFTER_ANY = "\"after_any\" TEXT NOT NULL DEFAULT '[]'"
_CALLED = '"sweep_name" TEXT'
_OF_A_SWEEP = 'CREATE INDEX task_sweep ON task ("sweep") WHERE "sweep" IS NOT NULL'
_WHO_HAS_IT = "CREATE INDEX task_environment ON task (environment) WHERE environment IS NOT NULL"

TABLES = (
    _ENVIRONMENT,
    f"""CREATE TABLE task (
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
        {_AFTER_ANY},
        "sweep" TEXT,
        {_CALLED},
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
        "plan" BLOB NOT NULL,
        {_OF_A_TASK})""",
    'CREATE INDEX task_name ON task ("name")',
    'CREATE INDEX task_package ON task ("package")',
    'CREATE INDEX task_state ON task ("state")',
    _WHO_HAS_IT,
    _OF_A_SWEEP,
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
)
"""``plan``, and the environment without which nobody wants it, are last: a listing, which leaves them out,
does not read past them."""


def _name(connection: sqlite3.Connection) -> None:
    """Gives the queue a number of its own, by which one that is made anew in its place is told from it."""
    number = 1 + int.from_bytes(os.urandom(4), "big") % (2**31 - 1)
    connection.execute(f"PRAGMA application_id = {number}")


_Steps = Sequence[str | Callable[[sqlite3.Connection], None]]
MIGRATIONS: dict[int, _Steps] = {
    1: (
        _ENVIRONMENT,
        f"ALTER TABLE task ADD COLUMN {_OF_A_TASK}",
        _WHO_HAS_IT,
        task_rows.take_out_environments,
    ),
    2: (
        f"ALTER TABLE task ADD COLUMN {_AFTER_ANY}",
        "DROP INDEX IF EXISTS task_array",
        'ALTER TABLE task RENAME COLUMN "array" TO "sweep"',
        _OF_A_SWEEP,
    ),
    3: (f"ALTER TABLE task ADD COLUMN {_CALLED}", _name),
}
"""What makes the tables of the next version of those of this one."""


def prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Makes the tables, or brings them up to date, when nobody else does. Of older ones a copy is kept until
    the new ones have been read whole: it holds environments of tasks that end afterwards.

    Raises:
        Refused: A newer roost has made them.
        rows.Unreadable: A row of theirs holds what no roost has written.
        sqlite3.Error: They cannot be read or made.
    """
    if _version(connection) == VERSION and not _copies(path):
        return
    with state_folder.exclusive_lock(path.parent):
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
            _apply(connection, (_name, *TABLES))
        elif found < VERSION:
            _keep_copy(connection, _copy(path, found))
            _apply(connection, [step for n in range(found, VERSION) for step in MIGRATIONS[n]])
        if copies := _copies(path):
            _tidy(connection)
            for copy in copies:
                copy.unlink()


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _apply(connection: sqlite3.Connection, steps: _Steps) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        for step in (*steps, f"PRAGMA user_version = {VERSION}"):
            if isinstance(step, str):
                connection.execute(step)
            else:
                step(connection)
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def _tidy(connection: sqlite3.Connection) -> None:
    """Reads all, and leaves nothing of the older tables in the file.

    Raises:
        sqlite3.Error: They are damaged, or cannot be written.
    """
    found = [str(row[0]) for row in connection.execute("PRAGMA integrity_check(1)")]
    if found != ["ok"]:
        raise sqlite3.DatabaseError(found[0])
    connection.execute("VACUUM")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _copy(path: Path, version: int) -> Path:
    return path.with_name(f"{path.name}.version-{version}")


def _copies(path: Path) -> list[Path]:
    return [copy for version in range(1, VERSION) if (copy := _copy(path, version)).exists()]


def _keep_copy(connection: sqlite3.Connection, path: Path) -> None:
    path.unlink(missing_ok=True)  # of a migration that was cut off
    copy = sqlite3.connect(path)
    path.chmod(0o600)
    try:
        connection.backup(copy)
    finally:
        copy.close()
