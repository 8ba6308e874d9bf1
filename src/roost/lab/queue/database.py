"""One connection to the lab's queue: SQLite, opened as safely as it can be, its errors told in words."""

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

NAME = "lab.db"
_PATIENCE_SECONDS = 10.0
_DAMAGED = ("SQLITE_CORRUPT", "SQLITE_NOTADB")
_NO_RIGHT = ("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_AUTH")
_REBUILD = "`roost lab rebuild` makes it anew from the packages"


def was_made(folder: Path) -> bool:
    """Whether there is a queue, or was one: what was queued then is told to be gone."""
    return (folder / NAME).exists() or bool(package_roots.read(folder))


def open_(folder: Path) -> sqlite3.Connection:
    """The queue in a folder, made if need be.

    Raises:
        Refused: Its place will not do, it is damaged or gone, or a newer roost has made it.
        RoostError: It cannot be written.
        OSError: Its folder cannot be made.
    """
    state_folder.prepare(folder)
    path = folder / NAME
    if was_made(folder) and not path.exists():
        raise Refused("the lab's queue is gone", where=path, fix=_REBUILD)
    with told(path):
        # A stream of the server is read by one thread after the other, never by two at once.
        connection = sqlite3.connect(
            path, isolation_level=None, timeout=_PATIENCE_SECONDS, check_same_thread=False
        )
        try:
            connection.execute("PRAGMA secure_delete = ON")  # of an environment that is forgotten
            schema.prepare(connection, path)
            state_folder.require_owner_and_mode(path, 0o600)
            for pragma in ("synchronous = FULL", "foreign_keys = ON"):
                connection.execute(f"PRAGMA {pragma}")
        except BaseException:
            connection.close()
            raise
    return connection


def check(connection: sqlite3.Connection, path: Path) -> None:
    """Reads all of it.

    Raises:
        Refused: It is damaged.
    """
    with told(path):
        found = [str(row[0]) for row in connection.execute("PRAGMA integrity_check(1)")]
    if found != ["ok"]:
        raise damaged(path, found[0])


def damaged(path: Path, why: object) -> Refused:
    """What is told of a queue that cannot be read."""
    what = f"the lab's queue is damaged: {' '.join(str(why).split())}"
    return Refused(what, where=path, fix=f"{_REBUILD} and keeps this one aside")


@contextlib.contextmanager
def told(path: Path) -> Iterator[None]:
    """Tells in words what goes wrong inside with the queue at ``path``.

    Raises:
        Refused: It is damaged, in use for too long, or may not be written.
        RoostError: It could not be written.
    """
    try:
        yield
    except (sqlite3.ProgrammingError, sqlite3.InterfaceError, sqlite3.IntegrityError):
        raise  # our own mistake
    except sqlite3.Error as error:
        raise _in_words(error, path) from error
    except task_rows.Unreadable as error:
        raise damaged(path, error) from error


def _in_words(error: sqlite3.Error, path: Path) -> RoostError:
    name = str(getattr(error, "sqlite_errorname", ""))
    if name.startswith(_DAMAGED) or not name:
        return damaged(path, error)
    if _is_busy(error):
        what = f"another process has kept the lab's queue locked for {_PATIENCE_SECONDS:g} s"
        return Refused(what, where=path, fix=f"`fuser {path}` names it; try again when it has ended")
    if name.startswith(_NO_RIGHT):
        fix = "make sure that you may write there, or set ROOST_STATE to another folder"
        return Refused(f"the lab's queue cannot be opened for writing: {error}", where=path, fix=fix)
    if name == "SQLITE_ERROR":  # a table or column is not there
        return damaged(path, error)
    what = f"the lab's queue could not be written: {error}; nothing was changed"
    return RoostError(what, where=path, fix="make room on that disk and try again")


def _is_busy(error: sqlite3.Error) -> bool:
    return str(getattr(error, "sqlite_errorname", "")).startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))


@contextlib.contextmanager
def reading(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """One state of the queue for all that is read inside."""
    if connection.in_transaction:
        yield connection
        return
    connection.execute("BEGIN")
    try:
        yield connection
    finally:
        connection.execute("ROLLBACK")


@contextlib.contextmanager
def writing(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """All that is written inside, or nothing. Its commit is on the disk before the block has ended; that of a
    block inside of another one, when the outer one has."""
    if connection.in_transaction:
        with _part(connection):
            yield connection
        return
    _begin(connection)
    try:
        yield connection
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # some errors have rolled it back already
            connection.execute("ROLLBACK")
        raise


def wipe(connection: sqlite3.Connection) -> bool:
    """Leaves nothing of what was deleted in the file beside the queue, to which changes are written first;
    gives whether that could be: not while somebody reads, and not on a full disk."""
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        return bool(connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0)
    except sqlite3.Error:  # the change itself is made; what is damaged is told by whoever reads next
        return False
    finally:
        connection.execute(f"PRAGMA busy_timeout = {int(_PATIENCE_SECONDS * 1000)}")


@contextlib.contextmanager
def _part(connection: sqlite3.Connection) -> Iterator[None]:
    """All that is written inside, or nothing of that alone."""
    connection.execute("SAVEPOINT part")
    try:
        yield
        connection.execute("RELEASE part")
    except BaseException:
        if connection.in_transaction:  # as in `writing`
            connection.execute("ROLLBACK TO part")
            connection.execute("RELEASE part")
        raise


def _begin(connection: sqlite3.Connection) -> None:
    """Waits for its turn. SQLite's own waiting ends in naps of 100 ms: among fifty writers one would hardly
    ever come at the right moment."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
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
        connection.execute(f"PRAGMA busy_timeout = {int(_PATIENCE_SECONDS * 1000)}")
