"""The sessions of a package: what was asked of each, and what became of it."""

from __future__ import annotations

import json
import os
import re
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from roost.base import durable, process, regular

_REQUEST = re.compile(r"(\d+)\.request\.json")


@dataclass(frozen=True)
class Session:
    """One execution of a package. ``record`` is what its supervisor wrote, None before it started."""

    number: int
    request: dict[str, Any]
    record: dict[str, Any] | None

    @property
    def state(self) -> str:
        """starting, running, succeeded, failed, stopped or crashed.

        A session whose process is gone reads as crashed, whoever looks.
        """
        said = self.record if self.record is not None else self.request
        state = str(said.get("state", "starting"))
        return "crashed" if state in ("starting", "running") and _gone(said) else state

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
    def error(self) -> str | None:
        """The last error line, for a session that failed or crashed."""
        if self.state == "crashed" and (self.record or {}).get("state") != "crashed":
            who = "program" if self.is_python else "supervisor"
            return f"the {who} is gone: killed, or the machine went down"
        return self.record.get("error") if self.record else None


def _gone(said: dict[str, Any]) -> bool:
    if said.get("host") != socket.gethostname():
        return False  # another machine's process cannot be looked at from here
    return not process.alive(int(said["pid"]), said.get("start_ticks"), str(said.get("boot_id")))


def identity() -> dict[str, Any]:
    """The calling process, such that a reader can tell whether it still lives."""
    pid = os.getpid()
    return {
        "host": socket.gethostname(),
        "boot_id": process.boot_id(),
        "pid": pid,
        "start_ticks": process.start_ticks(pid),
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


def _load(path: Path) -> dict[str, Any] | None:
    try:
        return dict(json.loads(regular.read(path)))
    except (OSError, ValueError, TypeError, RecursionError):
        return None


def read_all(folder: Path) -> list[Session]:
    """All sessions, oldest first."""
    return [read(folder / f"{n}.request.json", folder / f"{n}.json", number=n) for n in _numbers(folder)]


def read(request: Path, record: Path, *, number: int) -> Session:
    """One session by its two files; what cannot be read counts as not written yet."""
    return Session(number, _load(request) or {}, _load(record))


def _numbers(folder: Path) -> list[int]:
    with os.scandir(folder) as entries:
        return sorted(int(match[1]) for entry in entries if (match := _REQUEST.fullmatch(entry.name)))


def _used(folder: Path) -> set[int]:
    """Every number that some file here carries: one whose request was lost must not come twice."""
    if not folder.is_dir():
        return set()
    return {int(name) for path in folder.iterdir() if (name := path.name.partition(".")[0]).isdecimal()}


def write_request(folder: Path, request: dict[str, Any]) -> int:
    """Adds a session and gives its number. The caller holds the package's lock."""
    number = max(_used(folder) | _used(folder.parent / "records"), default=0) + 1
    body = {"session": number, **identity(), **request}
    durable.write(folder / f"{number}.request.json", to_json(body))
    return number


def write_record(folder: Path, number: int, record: dict[str, Any]) -> None:
    """Writes ``<n>.json`` of a session that records itself. On a full disk the end of one goes into the block
    that its start has already.

    Raises:
        OSError: Not even that is possible.
    """
    path = folder / f"{number}.json"
    try:
        durable.write(path, to_json(record))
    except OSError:
        if not path.exists():
            raise
        durable.overwrite(path, to_json(record))
