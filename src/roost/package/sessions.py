"""The sessions of a package: for each a request file and a session record."""

from __future__ import annotations

import json
import os
import re
import socket
import stat
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from roost.base import durable, safe_read
from roost.base.system import mounts, process_identity
from roost.package.kinds import TaskKind
from roost.package.session_schema import (
    LIVE_STATES,
    SESSION_FORMAT,
    SessionRecord,
    SessionRequest,
    process_fields,
)

LOCK_NAME = "lock"
"""The file of a package that a session has locked while it runs."""
INITIALIZED = "initialized"
"""The reason in the record of a session that only saved step 0 (``--initialize``); its exit code is 0."""
_REQUEST = re.compile(r"(\d+)\.request\.json")
_MAX_TIME = 1e11


class ProcessIdentity(NamedTuple):
    """A process of a session, as `roost.base.system.process_identity` compares it."""

    pid: int
    start_ticks: int | None
    boot_id: str


@dataclass(frozen=True)
class Session:
    """A session of a package, as its two files describe it."""

    number: int
    request: SessionRequest
    """Empty if the file cannot be read."""
    record: SessionRecord | None
    """None before the supervisor, which writes it, has started."""
    lock: Path | None = None
    """The file that is locked while the session runs; None: unknown."""
    damage: str | None = None
    """Why the record exists and cannot be read; None: it can, or there is none."""
    is_superseded: bool = False
    """Whether another machine has begun a later session, although this one has recorded no end."""

    @property
    def recorded(self) -> SessionRecord:
        """The record; without any field before there is one."""
        return self.record if self.record is not None else SessionRecord.from_json({})

    @cached_property
    def state(self) -> str:
        """starting, running, succeeded, failed, stopped or crashed, as at the first access.

        A session whose process no longer exists is crashed, for every reader.
        """
        fields = self.record if self.record is not None else self.request
        if not fields or self.damage is not None:
            return "crashed"  # its files, or the whole package, were removed
        if self.is_superseded:
            return "crashed"
        state = str(fields.get("state", "starting"))  # a record of another program may have none
        recorded_live = state in LIVE_STATES
        return "crashed" if recorded_live and _is_gone(fields, self.lock, self.record is not None) else state

    @property
    def is_live(self) -> bool:
        """Whether the session has not ended."""
        return self.state in LIVE_STATES

    @property
    def state_shown(self) -> str:
        """The state as lists show it: ``damaged`` if the record cannot be read: the end is unknown."""
        return "damaged" if self.damage is not None else self.state

    def is_effective(self, records: Path) -> bool:
        """Whether the session's request (overrides, a checkpoint to continue from) also applies to later
        sessions.

        True for a session that has begun, and for one that was stopped or killed while it was loading, as
        nothing was wrong with its request. False for one that failed before its first step, or could not be
        started.

        Args:
            records: The package's folder of records: a session that has begun has a file there.
        """
        if self.is_python or self.is_live:
            return True
        return (records / f"{self.number}.jsonl").exists() or (
            self.record is not None and self.state != "failed"
        )

    @property
    def checkpoint(self) -> int | None:
        """The checkpoint from which this session was requested to continue; None: the newest good one."""
        return self.request.checkpoint

    @property
    def is_python(self) -> bool:
        """Whether the session is that of a Python program that opened the package: it must not be
        signalled."""
        return self.request.kind == TaskKind.PYTHON

    @property
    def supervisor_pid(self) -> int | None:
        """The supervisor's process id while the session runs, else None; a Python program has none."""
        if self.is_python:
            return None
        return int(self.record["pid"]) if self.record is not None and self.state == "running" else None

    @property
    def supervisor(self) -> ProcessIdentity | None:
        """The supervisor, whether or not it still exists; None: no record names it."""
        return _identity(self.recorded, self.recorded.pid, self.recorded.start_ticks)

    @property
    def guard(self) -> ProcessIdentity | None:
        """The guard, whether or not it still exists; None: no record names it."""
        return _identity(self.recorded, self.recorded.guard_pid, self.recorded.guard_start_ticks)

    @property
    def guard_is_alive(self) -> bool:
        """Whether the guard exists, which would end the session and write its record if the supervisor were
        killed, and may start the next session. Checked at each access, on this machine only."""
        is_alive = _is_process_alive(self.recorded, self.guard)
        return is_alive and not (self.lock is not None and _is_free(self.lock))

    @property
    def may_have_watchers(self) -> bool:
        """Whether a process that the record names as guard or supervisor exists on this machine, be it of
        this package or of the one that this is a copy of."""
        processes = (self.guard, self.supervisor)
        return any(_is_process_alive(self.recorded, one) for one in processes)

    @property
    def is_locked(self) -> bool:
        """Whether a process holds the package's lock now."""
        return self.lock is not None and safe_read.is_locked(self.lock) is not False

    @property
    def is_on_this_machine(self) -> bool:
        """Whether the supervisor is, or was, a process of this machine, so that it can be signalled."""
        return self.recorded.host == socket.gethostname() or _is_alive(self.recorded)

    @property
    def error(self) -> str | None:
        """The last line of the error, of a session that failed or crashed."""
        if self.damage is not None:
            return f"its session record cannot be read, so its end is unknown: {self.damage}"
        if self.state == "crashed" and self.recorded.state != "crashed":
            process = "program" if self.is_python else "supervisor"
            return f"the {process} no longer exists: it was killed, or the machine went down"
        return self.recorded.error


def _is_gone(fields: SessionRecord | SessionRequest, lock: Path | None, is_recorded: bool) -> bool:
    if not isinstance(fields.pid, int) or _is_alive(fields):
        # The record of a copied package names processes of the original, that of a stranger's any process,
        # and a damaged one none.
        return is_recorded and lock is not None and _is_free(lock)
    if fields.host == socket.gethostname():
        return True
    # A process of another machine, of this one under an earlier name, or of a container that no longer
    # exists: its pid says nothing, but a lock does, on a file system where no other machine can hold one.
    if lock is None or not mounts.is_local_only(mounts.file_system_type(lock)):
        return False
    return safe_read.is_locked(lock) is False


def _is_free(lock: Path) -> bool:
    """Whether certainly no process holds a package's lock, which exists while a process writes to it."""
    try:
        if not stat.S_ISREG(os.lstat(lock).st_mode):
            return True
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return safe_read.is_locked(lock) is False


def _is_alive(fields: SessionRecord | SessionRequest) -> bool:
    """Whether the process that wrote the file runs on this machine, whatever the host name was then."""
    return _is_process_alive(fields, _identity(fields, fields.pid, fields.start_ticks))


def _is_process_alive(fields: SessionRecord | SessionRequest, process: ProcessIdentity | None) -> bool:
    is_known = fields.boot_id != "" or fields.host == socket.gethostname()
    return is_known and process is not None and process_identity.is_alive(*process)


def _identity(
    fields: SessionRecord | SessionRequest, pid: int | None, start_ticks: int | None
) -> ProcessIdentity | None:
    return ProcessIdentity(pid, start_ticks, str(fields.boot_id)) if isinstance(pid, int) else None


def own_identity() -> dict[str, Any]:
    """Returns the identity of the calling process, by which a reader finds out whether it still exists."""
    return process_fields(os.getpid())


def to_json(value: object) -> bytes:
    """Returns indented JSON of plain data. Beyond JSON, it keeps NaN and infinity (as Python's json writes
    them), and the bytes of a command line or a file name that are not UTF-8 (as lone surrogates)."""
    plain = msgspec.to_builtins(value, enc_hook=str)
    try:
        text = json.dumps(plain, indent=2, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        text = json.dumps(plain, indent=2).encode()
    return text + b"\n"


def load_json(path: Path) -> dict[str, Any] | None:
    """Reads a JSON file of a session or an analysis; None if it is missing or torn, or is not a mapping."""
    try:
        return dict(json.loads(safe_read.read(path)))
    except (OSError, ValueError, TypeError, RecursionError):
        return None


def unix_seconds(value: object) -> float | None:
    """Returns a time of a record, which may be written by any program, as Unix seconds; None if the value is
    not a plausible time."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < _MAX_TIME else None


def traceback_file(package: Path, number: int, rank: int = 0) -> Path:
    """Returns the file with the whole traceback of a failed session; each rank other than 0 has its own."""
    of_rank = f".rank-{rank}" if rank else ""
    return package / "sessions" / f"{number}{of_rank}.traceback.txt"


def read_all(folder: Path) -> list[Session]:
    """Returns all sessions, the oldest first."""
    lock = folder.parent / LOCK_NAME
    found = [
        read(folder / f"{n}.request.json", folder / f"{n}.json", number=n, lock=lock)
        for n in _numbers(folder)
    ]
    # A session of a machine that was lost: where no lock says that it has ended, the one after it does.
    return [
        replace(one, is_superseded=True)
        if one.recorded.state in LIVE_STATES and not one.is_on_this_machine
        else one
        for one in found[:-1]
    ] + found[-1:]


def in_effect(package: Path) -> list[Session]:
    """Returns the sessions of a package whose requests hold for later ones (`Session.is_effective`); if there
    is none, the first session, which began the run."""
    found = read_all(package / "sessions")
    return [one for one in found if one.is_effective(package / "records")] or found[:1]


def read(request: Path, record: Path, *, number: int, lock: Path | None = None) -> Session:
    """Reads one session from its two files; a file that cannot be read counts as not written yet."""
    found = Session(number, SessionRequest.from_json(load_json(request) or {}), load_record(record), lock)
    if found.state == "crashed":  # or it ended properly between reading its record and checking its process
        found = Session(number, found.request, load_record(record), lock)
    if found.record is None and not found.is_locked:
        return replace(found, damage=_damage(record))
    return found


def _damage(path: Path) -> str | None:
    """Returns why an existing JSON file cannot be read; None if there is none, or it can be read."""
    try:
        dict(json.loads(safe_read.read(path)))
    except FileNotFoundError:
        return None
    except OSError as error:
        return error.strerror or str(error)
    except (ValueError, TypeError, RecursionError) as error:
        return f"it is not JSON: {error}" if isinstance(error, ValueError) else "it is no mapping of JSON"
    return None


def load_record(path: Path) -> SessionRecord | None:
    """Reads a session record; None if it is missing or torn, or is not a mapping."""
    fields = load_json(path)
    return SessionRecord.from_json(fields) if fields is not None else None


def _numbers(folder: Path) -> list[int]:
    try:
        entries = os.scandir(folder)
    except (FileNotFoundError, NotADirectoryError):
        if not (folder.parent / "request.json").exists():  # the whole package was removed
            raise
        return []  # `package_schema` reports that the folder is missing
    with entries:
        return sorted(int(match[1]) for entry in entries if (match := _REQUEST.fullmatch(entry.name)))


def used_numbers(folder: Path) -> set[int]:
    """Returns all numbers in names of files here: that of a session whose request was lost must not be
    reused."""
    if not folder.is_dir():
        return set()
    return {int(name) for path in folder.iterdir() if (name := path.name.partition(".")[0]).isdecimal()}


def next_number(folder: Path) -> int:
    """Returns the number of the next session of a package or session folder."""
    return max(used_numbers(folder) | used_numbers(folder.parent / "records"), default=0) + 1


def write_request(folder: Path, request: Mapping[str, Any], *, is_durable: bool = True) -> int:
    """Adds a session and returns its number. The caller must hold the package's lock.

    Args:
        folder: The package's folder of sessions.
        request: The content of the request file.
        is_durable: Whether to make the file durable; if not, the supervisor must, before it writes the
            record.
    """
    number = next_number(folder)
    body = {"session": number, **own_identity(), **request}
    write = durable.write if is_durable else durable.write_unsynced
    write(folder / f"{number}.request.json", to_json(body))
    return number


class UnsupervisedRecord:
    """The record of a session, or an analysis, without a supervisor: its own process writes it.

    Args:
        path: The file.
        number: The number of the session.

    Raises:
        OSError: The record cannot be written.
    """

    def __init__(self, path: Path, number: int) -> None:
        self.number = number
        self._path, self._began = path, time.monotonic()
        self._fields = SessionRecord(
            format=SESSION_FORMAT,
            session=number,
            state="running",
            **own_identity(),
            started=round(time.time(), 3),
        )
        durable.write(path, to_json(self._fields))

    def end(self, state: str, reason: str, *, error: BaseException | None = None) -> None:
        """Writes the outcome; on a full disk into the block that the file already has.

        Args:
            state: The state if there is no error.
            reason: The reason if there is no error.
            error: The exception that ended the session. If the outcome cannot be written, that becomes a note
                of this exception and never replaces it.

        Raises:
            OSError: The outcome cannot be written, and there is no ``error``.
        """
        fields = self._fields
        fields.state, fields.reason, fields.error = (
            (state, reason, None) if error is None else _outcome_of_error(error)
        )
        fields.exit_code, fields.ended = None, round(time.time(), 3)
        fields.seconds = round(time.monotonic() - self._began, 3)
        try:
            self._replace()
        except OSError as failed:
            if error is None:
                raise
            error.add_note(f"the end of this session could not be recorded: {failed}")

    def _replace(self) -> None:
        try:
            durable.write(self._path, to_json(self._fields))
        except OSError:
            durable.overwrite(self._path, to_json(self._fields))


def _outcome_of_error(error: BaseException) -> tuple[str, str, str | None]:
    """Returns state, reason and error of a session that an exception ended."""
    if not isinstance(error, Exception | SystemExit):  # Ctrl-C
        return "stopped", type(error).__name__, None
    from roost.base import exception_record, traceback_frames  # 10 ms, needed only for a failure

    summary = traceback_frames.exception_summary(exception_record.record_exception(error))
    return "failed", "exception", summary
