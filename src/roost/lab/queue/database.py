"""One connection to the lab's queue: durable SQLite transactions, and errors as `RoostError`."""

from __future__ import annotations

import contextlib
import random
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

from roost.base.errors import Refused, RoostError
from roost.base.system import state_folder
from roost.lab.queue import package_roots, schema, task_rows

FILE_NAME = "lab.db"
_BUSY_TIMEOUT_SECONDS = 10.0
_DAMAGED = ("SQLITE_CORRUPT", "SQLITE_NOTADB")
_NO_PERMISSION = ("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_AUTH")
_REBUILD_FIX = "run `roost lab rebuild`, which builds a new queue from the packages"


def has_existed(folder: Path) -> bool:
    """Returns whether a folder has a queue or had one before; a lost queue must be reported, not replaced.

    Raises:
        Refused: The folder belongs to another user.
    """
    state_folder.require_owner(folder)
    return (folder / FILE_NAME).exists() or bool(package_roots.read(folder))


def open_database(folder: Path) -> sqlite3.Connection:
    """Opens the queue in a folder, and creates it if there never was one.

    Raises:
        Refused: The folder is not suitable, or the queue is damaged, missing, or of a newer roost.
        RoostError: The queue cannot be written.
        OSError: The folder cannot be created.
    """
    state_folder.prepare(folder)
    path = folder / FILE_NAME
    if has_existed(folder) and not path.exists():
        raise Refused("the lab's queue is missing", where=path, fix=_REBUILD_FIX)
    with translate_errors(path):
        # An event stream of the server is read by different threads, but never by two at once.
        connection = sqlite3.connect(
            path, isolation_level=None, timeout=_BUSY_TIMEOUT_SECONDS, check_same_thread=False
        )
        try:
            if not connection.execute("PRAGMA user_version").fetchone()[0] and package_roots.read(folder):
                raise damaged_error(path, "it is empty, and there were tasks")
            connection.execute("PRAGMA secure_delete = ON")  # for environments, which may hold secrets
            schema.prepare(connection, path)
            state_folder.require_owner_and_mode(path, 0o600)
            for pragma in ("synchronous = FULL", "foreign_keys = ON"):
                connection.execute(f"PRAGMA {pragma}")
        except BaseException:
            connection.close()
            raise
    return connection


def check_integrity(connection: sqlite3.Connection, path: Path) -> None:
    """Reads the whole queue and checks its integrity.

    Raises:
        Refused: The queue is damaged.
    """
    with translate_errors(path):
        found = [str(row[0]) for row in connection.execute("PRAGMA integrity_check(1)")]
    if found != ["ok"]:
        raise damaged_error(path, found[0])


def damaged_error(path: Path, why: object) -> Refused:
    """Returns the error for a queue that cannot be read."""
    what = f"the lab's queue is damaged: {' '.join(str(why).split())}"
    return Refused(what, where=path, fix=f"{_REBUILD_FIX} and keeps this one under another name")


@contextlib.contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """Turns errors of SQLite in a block, which uses the queue at ``path``, into errors for the user.

    Raises:
        Refused: The queue is damaged, was locked for too long, or the user may not write it.
        RoostError: It could not be written.
    """
    try:
        yield
    except (sqlite3.ProgrammingError, sqlite3.InterfaceError, sqlite3.IntegrityError):
        raise  # a defect of roost
    except sqlite3.Error as error:
        raise _roost_error(error, path) from error
    except task_rows.UnreadableRow as error:
        raise damaged_error(path, error) from error


def _roost_error(error: sqlite3.Error, path: Path) -> RoostError:
    name = str(getattr(error, "sqlite_errorname", ""))
    if name.startswith(_DAMAGED) or not name:
        return damaged_error(path, error)
    if _is_busy(error):
        what = f"another process has kept the lab's queue locked for {_BUSY_TIMEOUT_SECONDS:g} s"
        return Refused(what, where=path, fix=f"find it with `fuser {path}`, and try again after it has ended")
    if name.startswith(_NO_PERMISSION):
        fix = "get write permission there, or set ROOST_STATE to another folder"
        return Refused(f"the lab's queue cannot be opened for writing: {error}", where=path, fix=fix)
    if name == "SQLITE_ERROR":  # a table or column is missing
        return damaged_error(path, error)
    what = f"the lab's queue could not be written: {error}; nothing was changed"
    return RoostError(what, where=path, fix="free space on that disk and try again")


def _is_busy(error: sqlite3.Error) -> bool:
    return str(getattr(error, "sqlite_errorname", "")).startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))


@contextlib.contextmanager
def read_transaction(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """A block whose reads all see one state of the queue."""
    if connection.in_transaction:
        yield connection
        return
    connection.execute("BEGIN")
    try:
        yield connection
    finally:
        connection.execute("ROLLBACK")


@contextlib.contextmanager
def write_transaction(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """A block whose writes are all made, or none. They are durable when the block ends; those of a nested
    block, when the outer one ends."""
    if connection.in_transaction:
        with _savepoint(connection):
            yield connection
        return
    _begin_immediate(connection)
    try:
        yield connection
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # some errors have rolled it back already
            connection.execute("ROLLBACK")
        raise


def truncate_wal(connection: sqlite3.Connection) -> bool:
    """Removes deleted data from the write-ahead log; returns whether that was possible: not while another
    process reads, and not on a full disk."""
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        return bool(connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0)
    except sqlite3.Error:  # the change itself is committed; the next reader reports a damaged file
        return False
    finally:
        connection.execute(f"PRAGMA busy_timeout = {int(_BUSY_TIMEOUT_SECONDS * 1000)}")


@contextlib.contextmanager
def _savepoint(connection: sqlite3.Connection) -> Iterator[None]:
    """A nested block whose writes are all made, or none of them."""
    connection.execute("SAVEPOINT part")
    try:
        yield
        connection.execute("RELEASE part")
    except BaseException:
        if connection.in_transaction:  # as in `write_transaction`
            connection.execute("ROLLBACK TO part")
            connection.execute("RELEASE part")
        raise


def _begin_immediate(connection: sqlite3.Connection) -> None:
    """Begins a write transaction, and waits for other writers.

    SQLite's own busy handler sleeps for up to 100 ms at a time: among fifty writers it would hardly ever wake
    at a moment when the queue is free.
    """
    deadline = time.monotonic() + _BUSY_TIMEOUT_SECONDS
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        while True:
            try:
                connection.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if not _is_busy(error) or time.monotonic() > deadline:
                    raise
            time.sleep(random.uniform(0.001, 0.01))
    finally:
        connection.execute(f"PRAGMA busy_timeout = {int(_BUSY_TIMEOUT_SECONDS * 1000)}")
