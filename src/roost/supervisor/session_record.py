"""``sessions/<n>.json``: what the supervisor, and after its death the guard, writes down of a session."""

# Standard library only

from __future__ import annotations

import json
import os
import resource
import sys
import time
from typing import Any

from roost.base.system import process_identity
from roost.supervisor.exit_status import SessionOutcome, status_name

SESSION_FORMAT = 1


class SessionRecord:
    """The fields of one session, and their file. The modules that write are imported at the first write,
    after the worker was forked: they would hold up every start by 6 ms."""

    def __init__(self, path: str, fields: dict[str, Any]) -> None:
        self.path, self.fields = path, fields

    @classmethod
    def load(cls, path: str) -> SessionRecord | None:
        """The one that stands; None if there is none that can be read."""
        try:
            with open(path, "rb") as file:
                return cls(path, dict(json.load(file)))
        except (OSError, ValueError, TypeError):
            return None

    def write(self) -> None:
        """Replaces the file. Raises OSError."""
        from pathlib import Path

        from roost.base import durable

        durable.write(Path(self.path), self._text())

    def write_first(self, request_file: str) -> None:
        """Writes, and makes the session's request durable before, if it is named. Raises OSError."""
        if request_file:
            from pathlib import Path

            from roost.base import durable

            durable.sync_file(Path(request_file))
        self.write()

    def write_if_possible(self) -> None:
        """For what is told in the output too: a full disk must not end the run."""
        try:
            self.write()
        except OSError:
            return

    def write_end(self, end: SessionOutcome) -> list[str]:
        """Adds how it ended and writes; gives what is to be said if that is impossible."""
        self.fields |= end._asdict() | {"peak_memory_mb": _peak_memory_mb()}
        try:
            self.write()
        except OSError as error:
            what = f"the end of this session ({end.state}, {end.reason}) could not be recorded: {error}"
            return [what, *self._overwrite()]
        return []

    def note_worker_end(self, worker_status: int | None, seconds: float) -> None:
        """The moment is that of the worker's end, not that of the last process it left behind."""
        self.fields["ended"] = time.time()
        self.fields["seconds"] = round(seconds, 3)
        if worker_status is not None:
            self.fields["worker_status"] = status_name(worker_status)

    def _overwrite(self) -> list[str]:
        """On a full disk: into the block that the record of the start has already."""
        from pathlib import Path

        from roost.base import durable

        try:
            durable.overwrite(Path(self.path), self._text())
        except OSError as error:
            return [f"nor in place: {error}"]
        return []

    def _text(self) -> bytes:
        # A field a line, without `indent`: with that json leaves C, for half a millisecond.
        return json.dumps(self.fields, separators=(",\n ", ": "), allow_nan=False).encode() + b"\n"


def initial_fields(session: int, *, worker_pid: int | None, guard_pid: int, group: str | None) -> dict[str, Any]:
    """The fields of a session that begins, written by its supervisor; by the guard before a restart, when
    there is no worker yet."""
    return {
        "format": SESSION_FORMAT,
        "session": session,
        "state": "running",
        "host": os.uname().nodename,
        "boot_id": process_identity.boot_id(),
        "pid": os.getpid(),
        "start_ticks": process_identity.start_ticks(os.getpid()),
        "guard_pid": guard_pid,
        "guard_start_ticks": process_identity.start_ticks(guard_pid),
        "worker_pid": worker_pid,
        "cgroup": group,
        "started": time.time(),
    }


def _peak_memory_mb() -> float:
    """Of the largest single process that was our child, in MB."""
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return round(peak / (1024 if sys.platform == "linux" else 1024 * 1024), 1)
