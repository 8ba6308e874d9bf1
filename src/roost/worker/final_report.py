"""The final report: the JSON line by which a worker reports its end to the supervisor."""

# Not durable: opens the pipe of a supervisor

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from roost.base.system.worker_protocol import REPORT_VARIABLE

_MAX_ERROR_CHARACTERS = 2000
"""Limit of an error text where several ranks share one pipe: lines up to 4 kB are written atomically."""


class FinalReport:
    """Writes the final line to the pipe that the supervisor opened. Without that line the worker counts as
    crashed, whatever its exit code: ``sys.exit(0)`` in user code is no success.

    A rank that was started by a launcher opens the pipe by its path. It writes its pid at once, so that the
    supervisor can signal it, and adds its rank to the final line."""

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
        """Writes the final line, once, and returns the exit code for the process. Writes nothing in a process
        that the project's code forked: its end is not the end of the run.

        Args:
            state: succeeded, failed or stopped.
            exit_code: Of the process.
            reason: Code of the reason, one word.
            error: One line about the error.
            memory: Card memory used (`roost.worker.card_memory.usage`).
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
        # A launcher takes every code but 0 for a failure, and kills the ranks that are still saving.
        return 0 if self._is_launched and state != "failed" else exit_code


def report_exit_statuses(statuses: Mapping[int, int]) -> None:
    """Writes the exit statuses of failed ranks, as the launcher knows them: exit code, or minus the signal
    number. The final report of a rank, where there is one, has more details."""
    lines = [json.dumps({"rank": rank, "status": status}) for rank, status in statuses.items()]
    with open(os.environ[REPORT_VARIABLE], "wb", buffering=0) as pipe:
        pipe.write("".join(f"{line}\n" for line in lines).encode())
