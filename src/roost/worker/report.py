"""The one line by which a worker tells how it ended."""

from __future__ import annotations

import json
import os

from roost.base.handover import REPORT_VARIABLE


class Report:
    """Writes the final line to the pipe that the supervisor opened. Without that line the worker counts as
    crashed, whatever its exit code: ``sys.exit(0)`` in user code is no success."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        given = os.environ.pop(REPORT_VARIABLE, None)  # loader workers and other children must not have it
        self._fd = int(given) if given is not None else None
        if self._fd is not None:
            os.set_inheritable(self._fd, False)

    def final(self, state: str, *, exit_code: int, reason: str, error: str | None = None) -> int:
        """Tells how it ended, once; gives the exit code. A process that the project's code forked says
        nothing: its end is not the run's."""
        if self._fd is not None and os.getpid() == self._pid:
            body = {"state": state, "exit_code": exit_code, "reason": reason, "error": error}
            data = json.dumps(body).encode() + b"\n"
            while data:
                data = data[os.write(self._fd, data) :]
            os.close(self._fd)
            self._fd = None
        return exit_code
