"""The sessions of a package: what was asked of each, and what became of it."""

from __future__ import annotations

import json
import os
import re
import socket
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from roost.base import durable, safe_read
from roost.base.system import mounts, process_identity

SESSION_FORMAT = 1
INITIALIZED = "initialized"
"""Why a session ended that was to save step 0 and no more; its exit code is 0."""
_REQUEST = re.compile(r"(\d+)\.request\.json")
_MAX_TIME = 1e11


@dataclass(frozen=True)
class Session:
    """One execution of a package. ``record`` is what its supervisor wrote, None before it started."""

    number: int
    request: dict[str, Any]
    record: dict[str, Any] | None
    lock: Path | None = None
    """What is locked as long as it runs; None: nobody knows."""

    @cached_property
    def state(self) -> str:
        """starting, running, succeeded, failed, stopped or crashed, as it was at the first look.

        A session whose process is gone reads as crashed, whoever looks.
        """
        said = self.record if self.record is not None else self.request
        if not said:
            return "crashed"  # its files are gone: somebody has removed them, or the package
        state = str(said.get("state", "starting"))
        return "crashed" if state in ("starting", "running") and _is_gone(said, self.lock) else state

    def counts(self, records: Path) -> bool:
        """Whether what was asked of it (overrides, a checkpoint to go on from) holds for later sessions, too.

        It does once it has begun, and for one that was stopped or killed while it loaded itself: nothing
        spoke against it. It does not for one that failed before its first step, or could not be started.

        Args:
            records: The package's folder of records: a session that has begun has a file there.
        """
        if self.is_python or self.state in ("starting", "running"):
            return True
        return (records / f"{self.number}.jsonl").exists() or (
            self.record is not None and self.state != "failed"
        )

    @property
    def checkpoint(self) -> int | None:
        """The checkpoint this session was told to go on from; None: the newest good one."""
        return self.request.get("checkpoint")

    @property
    def is_python(self) -> bool:
        """Whether it is a program that opened the package, in its own process: nobody may signal that."""
        return self.request.get("kind") == "python"

    @property
    def supervisor_pid(self) -> int | None:
        """The supervisor's process id while the session runs, else None; a program of Python has none."""
        if self.is_python:
            return None
        return int(self.record["pid"]) if self.record is not None and self.state == "running" else None

    @property
    def guard_lives(self) -> bool:
        """Whether the process is still there that ends the session, writes that down and may begin the next,
        should its supervisor be killed. It is looked for anew each time, on this machine alone."""
        return _is_alive(self.record or {}, "guard_")

    @property
    def is_locked(self) -> bool:
        """Whether somebody holds the lock of its package now."""
        return self.lock is not None and safe_read.is_locked(self.lock) is not False

    @property
    def is_here(self) -> bool:
        """Whether its supervisor is, or was, a process of this machine, so that it can be signalled."""
        record = self.record or {}
        return record.get("host") == socket.gethostname() or _is_alive(record)

    @property
    def error(self) -> str | None:
        """The last error line, for a session that failed or crashed."""
        if self.state == "crashed" and (self.record or {}).get("state") != "crashed":
            who = "program" if self.is_python else "supervisor"
            return f"the {who} is gone: killed, or the machine went down"
        return self.record.get("error") if self.record else None


def _is_gone(said: dict[str, Any], lock: Path | None) -> bool:
    if not isinstance(said.get("pid"), int) or _is_alive(said):
        return False  # or nobody can say, of a damaged record
    if said.get("host") == socket.gethostname():
        return True
    # Of another machine, of this one under the name that it had, or of a container that is no more: a process
    # tells nothing then, but a lock does, where no other machine could hold it unseen.
    if lock is None or not mounts.is_local_only(mounts.file_system_type(lock)):
        return False
    return safe_read.is_locked(lock) is False


def _is_alive(said: dict[str, Any], whose: str = "") -> bool:
    """Whether exactly this process runs here, whatever this machine was called when it started."""
    pid, boot = said.get(f"{whose}pid"), str(said.get("boot_id"))
    is_known = bool(boot) or said.get("host") == socket.gethostname()
    return (
        is_known
        and isinstance(pid, int)
        and process_identity.is_alive(pid, said.get(f"{whose}start_ticks"), boot)
    )


def own_identity() -> dict[str, Any]:
    """The calling process, such that a reader can tell whether it still lives."""
    pid = os.getpid()
    return {
        "host": socket.gethostname(),
        "boot_id": process_identity.boot_id(),
        "pid": pid,
        "start_ticks": process_identity.start_ticks(pid),
    }


def to_json(value: object) -> bytes:
    """Readable JSON of anything plain. Of what JSON cannot say, it keeps NaN and infinity (as Python's json
    writes them) and the bytes of a command line or a file's name that are no UTF-8 (as lone surrogates)."""
    plain = msgspec.to_builtins(value, enc_hook=str)
    try:
        text = json.dumps(plain, indent=2, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        text = json.dumps(plain, indent=2).encode()
    return text + b"\n"


def load_json(path: Path) -> dict[str, Any] | None:
    """A JSON file of a session or an analysis; None when it is not there, torn, or no mapping."""
    try:
        return dict(json.loads(safe_read.read(path)))
    except (OSError, ValueError, TypeError, RecursionError):
        return None


def unix_seconds(told: object) -> float | None:
    """Unix seconds as a record tells them, whoever wrote it; None where it tells none that can be."""
    if isinstance(told, bool) or not isinstance(told, int | float):
        return None
    return float(told) if 0 <= told < _MAX_TIME else None


def traceback_file(package: Path, number: int, rank: int = 0) -> Path:
    """Where a session that failed keeps the whole traceback; other ranks than 0 have files of their own."""
    of_rank = f".rank-{rank}" if rank else ""
    return package / "sessions" / f"{number}{of_rank}.traceback.txt"


def read_all(folder: Path) -> list[Session]:
    """All sessions, oldest first."""
    lock = folder.parent / "lock"
    return [
        read(folder / f"{n}.request.json", folder / f"{n}.json", number=n, lock=lock)
        for n in _numbers(folder)
    ]


def read(request: Path, record: Path, *, number: int, lock: Path | None = None) -> Session:
    """One session by its two files; what cannot be read counts as not written yet."""
    found = Session(number, load_json(request) or {}, load_json(record), lock)
    if found.state == "crashed":  # or it wrote down its end after we had read, and before we looked for it
        return Session(number, found.request, load_json(record), lock)
    return found


def _numbers(folder: Path) -> list[int]:
    with os.scandir(folder) as entries:
        return sorted(int(match[1]) for entry in entries if (match := _REQUEST.fullmatch(entry.name)))


def _used_numbers(folder: Path) -> set[int]:
    """Every number that some file here carries: one whose request was lost must not come twice."""
    if not folder.is_dir():
        return set()
    return {int(name) for path in folder.iterdir() if (name := path.name.partition(".")[0]).isdecimal()}


def write_request(folder: Path, request: dict[str, Any], *, is_durable: bool = True) -> int:
    """Adds a session and gives its number. The caller holds the package's lock.

    Args:
        folder: Of the package's sessions.
        request: What is asked of it.
        is_durable: Else that is for the supervisor to see to, before it writes down that the session runs.
    """
    number = max(_used_numbers(folder) | _used_numbers(folder.parent / "records"), default=0) + 1
    body = {"session": number, **own_identity(), **request}
    write = durable.write if is_durable else durable.write_unsynced
    write(folder / f"{number}.request.json", to_json(body))
    return number


class UnsupervisedRecord:
    """The record of a session, or an analysis, that no supervisor watches: its own process writes it.

    Args:
        path: The file.
        number: Of the session.

    Raises:
        OSError: The start cannot be written down.
    """

    def __init__(self, path: Path, number: int) -> None:
        self.number = number
        self._path, self._began = path, time.monotonic()
        self._fields = {"format": SESSION_FORMAT, "session": number, "state": "running", **own_identity()}
        self._fields["started"] = round(time.time(), 3)
        durable.write(path, to_json(self._fields))

    def end(self, state: str, reason: str, *, error: BaseException | None = None) -> None:
        """Writes down how it ended; on a full disk into the block that the start has already.

        Args:
            state: What it is without an error.
            reason: Likewise.
            error: What ended it. That the end cannot be written down is a note of it, and hides it never.

        Raises:
            OSError: There is no error, and the end cannot be written down.
        """
        ending = {"state": state, "reason": reason, "error": None} if error is None else _outcome_fields(error)
        seconds = round(time.monotonic() - self._began, 3)
        self._fields |= {**ending, "exit_code": None, "ended": round(time.time(), 3), "seconds": seconds}
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


def _outcome_fields(error: BaseException) -> dict[str, Any]:
    if not isinstance(error, Exception | SystemExit):  # Ctrl-C
        return {"state": "stopped", "reason": type(error).__name__, "error": None}
    from roost.base import exception_record, traceback_frames  # 10 ms, for a failure alone

    return {
        "state": "failed",
        "reason": "exception",
        "error": traceback_frames.exception_summary(exception_record.record_exception(error)),
    }
