"""The tables of the lab's queue, and the migrations from the tables of older versions."""

# Not durable: removes the copy of an interrupted migration

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

from roost.base.errors import Refused
from roost.base.system import state_folder
from roost.lab.queue import task_rows

VERSION = 5

_ENVIRONMENT_TABLE = """CREATE TABLE environment (
        number INTEGER PRIMARY KEY,
        digest BLOB NOT NULL UNIQUE,
        variables BLOB NOT NULL)"""
_ENVIRONMENT_COLUMN = "environment INTEGER REFERENCES environment (number)"
_AFTER_ANY_COLUMN = "\"after_any\" TEXT NOT NULL DEFAULT '[]'"
_SWEEP_NAME_COLUMN = '"sweep_name" TEXT'
_KIND_COLUMN = "\"kind\" TEXT NOT NULL DEFAULT 'train'"
_SESSION_FOLDER_COLUMN = "\"session_folder\" TEXT NOT NULL DEFAULT ''"
_SWEEP_INDEX = 'CREATE INDEX task_sweep ON task ("sweep") WHERE "sweep" IS NOT NULL'
_ENVIRONMENT_INDEX = "CREATE INDEX task_environment ON task (environment) WHERE environment IS NOT NULL"

TABLES = (
    _ENVIRONMENT_TABLE,
    f"""CREATE TABLE task (
        seq INTEGER PRIMARY KEY,
        "id" TEXT NOT NULL UNIQUE,
        "name" TEXT NOT NULL,
        {_KIND_COLUMN},
        "package" TEXT NOT NULL,
        {_SESSION_FOLDER_COLUMN},
        "user" TEXT NOT NULL,
        "state" TEXT NOT NULL,
        "reason" TEXT NOT NULL,
        "version" INTEGER NOT NULL,
        "need" TEXT NOT NULL,
        "priority" INTEGER NOT NULL,
        "submitted" REAL NOT NULL,
        "begin" REAL,
        "after" TEXT NOT NULL,
        {_AFTER_ANY_COLUMN},
        "sweep" TEXT,
        {_SWEEP_NAME_COLUMN},
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
        {_ENVIRONMENT_COLUMN})""",
    'CREATE INDEX task_name ON task ("name")',
    'CREATE INDEX task_package ON task ("package")',
    'CREATE INDEX task_state ON task ("state")',
    _ENVIRONMENT_INDEX,
    _SWEEP_INDEX,
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
"""``plan`` and its environment are the last columns: a listing leaves them out, and so does not read past
them."""


def _set_identity(connection: sqlite3.Connection) -> None:
    """Gives the queue a random number, which differs after a rebuild in the same folder."""
    number = 1 + int.from_bytes(os.urandom(4), "big") % (2**31 - 1)
    connection.execute(f"PRAGMA application_id = {number}")


_Steps = Sequence[str | Callable[[sqlite3.Connection], None]]
MIGRATIONS: dict[int, _Steps] = {
    1: (
        _ENVIRONMENT_TABLE,
        f"ALTER TABLE task ADD COLUMN {_ENVIRONMENT_COLUMN}",
        _ENVIRONMENT_INDEX,
        task_rows.separate_environments,
    ),
    2: (
        f"ALTER TABLE task ADD COLUMN {_AFTER_ANY_COLUMN}",
        "DROP INDEX IF EXISTS task_array",
        'ALTER TABLE task RENAME COLUMN "array" TO "sweep"',
        _SWEEP_INDEX,
    ),
    3: (f"ALTER TABLE task ADD COLUMN {_SWEEP_NAME_COLUMN}", _set_identity),
    4: (
        f"ALTER TABLE task ADD COLUMN {_KIND_COLUMN}",
        f"ALTER TABLE task ADD COLUMN {_SESSION_FOLDER_COLUMN}",
        task_rows.set_kinds,
    ),
}
"""The steps from the tables of each version to those of the next."""


def prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Creates the tables or migrates them, under an exclusive lock.

    A copy of older tables is kept until the new ones have been read whole, and no longer: it holds
    environments of tasks that end later.

    Raises:
        Refused: A newer roost has created the tables.
        task_rows.UnreadableRow: A row has a value that no roost writes.
        sqlite3.Error: The tables cannot be read or written.
    """
    if _version(connection) == VERSION and not _existing_copies(path):
        return
    with state_folder.exclusive_lock(path.parent):
        found = _version(connection)
        if found > VERSION:
            what = f"a newer roost created this queue (its version is {found}, this roost knows {VERSION})"
            fix = "install that roost again, or set ROOST_STATE to another folder"
            raise Refused(what, where=path, fix=fix)
        if found == 0:
            path.chmod(0o600)
            connection.execute("PRAGMA journal_mode = WAL")
            _apply(connection, (_set_identity, *TABLES))
        elif found < VERSION:
            _back_up(connection, _copy_path(path, found))
            _apply(connection, [step for n in range(found, VERSION) for step in MIGRATIONS[n]])
        if copies := _existing_copies(path):
            _check_and_vacuum(connection)
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


def _check_and_vacuum(connection: sqlite3.Connection) -> None:
    """Reads the whole file, and removes the data of the older tables from it.

    Raises:
        sqlite3.Error: The file is damaged, or cannot be written.
    """
    found = [str(row[0]) for row in connection.execute("PRAGMA integrity_check(1)")]
    if found != ["ok"]:
        raise sqlite3.DatabaseError(found[0])
    connection.execute("VACUUM")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _copy_path(path: Path, version: int) -> Path:
    return path.with_name(f"{path.name}.version-{version}")


def _existing_copies(path: Path) -> list[Path]:
    return [copy for version in range(1, VERSION) if (copy := _copy_path(path, version)).exists()]


def _back_up(connection: sqlite3.Connection, path: Path) -> None:
    path.unlink(missing_ok=True)  # of an interrupted migration
    copy = sqlite3.connect(path)
    path.chmod(0o600)
    try:
        connection.backup(copy)
    finally:
        copy.close()
