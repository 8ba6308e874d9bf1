"""The one line by which a worker tells how it ended."""

# Not durable: opens the pipe of a supervisor

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from roost.base.system.worker_protocol import REPORT_VARIABLE

_MAX_ERROR_CHARACTERS = 2000
"""Characters of an error, where several ranks write into one pipe: a line up to 4 kB is written at once."""


class FinalReport:
    """Writes the final line to the pipe that the supervisor opened. Without that line the worker counts as
    crashed, whatever its exit code: ``sys.exit(0)`` in user code is no success.

    A rank that a launcher has started finds the pipe by its path. It tells its pid at once, so that it can be
    asked to stop, and its rank with its end."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        given = os.environ.pop(REPORT_VARIABLE, None)  # loader workers and other children must not have it
        self._is_launched = given is not None and not given.isdecimal()
        self._fd: int | None = None
        if given is not None:
            self._fd = os.open(given, os.O_WRONLY | os.O_CLOEXEC) if self._is_launched else int(given)
            os.set_inheritable(self._fd, False)
        if self._fd is not None and self._is_launched:
            os.write(self._fd, json.dumps({"launched": self._pid}).encode() + b"\n")

    def write(
        self,
        state: str,
        *,
        exit_code: int,
        reason: str,
        error: str | None = None,
        memory: Mapping[str, Any] | None = None,
    ) -> int:
        """Tells how it ended, once; gives the exit code. A process that the project's code forked says
        nothing: its end is not the run's.

        Args:
            state: succeeded, failed or stopped.
            exit_code: That of the process.
            reason: Why, in a word.
            error: Why, in a line.
            memory: What it has taken of its card (`roost.worker.card_memory`).
        """
        if self._fd is not None and os.getpid() == self._pid:
            body: dict[str, Any] = {"state": state, "exit_code": exit_code, "reason": reason, "error": error}
            if memory is not None:
                body["memory"] = dict(memory)
            if self._is_launched:
                body["rank"] = int(os.environ.get("RANK", "0"))
                body["error"] = error and error[:_MAX_ERROR_CHARACTERS]
            data = json.dumps(body).encode() + b"\n"
            while data:
                data = data[os.write(self._fd, data) :]
            os.close(self._fd)
            self._fd = None
        # For a launcher any other code than 0 is a failure, for which it ends the ranks that still save.
        return 0 if self._is_launched and state != "failed" else exit_code


def report_exit_statuses(statuses: Mapping[int, int]) -> None:
    """What a launcher tells of ranks that have failed: the exit code of each, or minus the signal that ended
    it. What a rank has said itself holds more."""
    lines = [json.dumps({"rank": rank, "status": status}) for rank, status in statuses.items()]
    with open(os.environ[REPORT_VARIABLE], "wb", buffering=0) as pipe:
        pipe.write("".join(f"{line}\n" for line in lines).encode())
