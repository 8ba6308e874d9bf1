"""The file of a session record, written by the supervisor, and by the guard if the supervisor is killed. Its
fields are in `roost.package.session_schema`."""

# Standard library only

from __future__ import annotations

import json
import os
import resource
import sys
import time

from roost.base.system import process_identity
from roost.package.session_schema import SESSION_FORMAT, SessionRecord, process_fields
from roost.supervisor.exit_status import SessionOutcome, status_name


class SessionRecordFile:
    """The record of one session, and its file.

    The modules that write are imported at the first write, after the worker was forked: earlier they would
    delay every start by 6 ms.
    """

    def __init__(self, path: str, fields: SessionRecord) -> None:
        self.path, self.fields = path, fields

    @classmethod
    def load(cls, path: str) -> SessionRecordFile | None:
        """Reads a record; None if the file is missing or unreadable."""
        fields = SessionRecord.load(path)
        return cls(path, fields) if fields is not None else None

    def write(self) -> None:
        """Replaces the file. Raises OSError."""
        from pathlib import Path

        from roost.base import durable

        durable.write(Path(self.path), self._text())

    def write_first(self, request_file: str) -> None:
        """Writes the record, after making the session's request file durable if one is given. Raises
        OSError."""
        if request_file:
            from pathlib import Path

            from roost.base import durable

            durable.sync_file(Path(request_file))
        self.write()

    def write_if_possible(self) -> None:
        """Writes facts that are in the output too: a full disk must not end the run."""
        try:
            self.write()
        except OSError:
            return

    def write_end(self, end: SessionOutcome) -> list[str]:
        """Adds the outcome and writes; returns the lines to print if that fails."""
        fields = self.fields
        fields.state, fields.exit_code, fields.reason, fields.error = end
        fields.peak_memory_mb = _peak_memory_mb()
        try:
            self.write()
        except OSError as error:
            what = f"the end of this session ({end.state}, {end.reason}) could not be recorded: {error}"
            return [what, *self._overwrite()]
        return []

    def note_worker_end(self, worker_status: int | None, seconds: float) -> None:
        """Sets the time of the worker's end, which is not that of the last process it left behind."""
        self.fields.ended = time.time()
        self.fields.seconds = round(seconds, 3)
        if worker_status is not None:
            self.fields.worker_status = status_name(worker_status)

    def note_progress(self) -> None:
        """Sets how far the run has got, by which attempts that go in circles are found."""
        from roost.supervisor import attempt_progress

        folder = os.path.dirname(os.path.dirname(self.path))  # noqa: PTH120
        progress = f"{folder}/progress"
        if not os.access(progress, os.F_OK):
            return
        from pathlib import Path

        from roost.package import live_progress

        found = live_progress.read(Path(progress))
        if found is not None and found.wall >= (self.fields.started or 0.0):
            self.fields.step = found.step
        saved = attempt_progress.newest_saved_step(folder)
        if saved is not None:
            self.fields.saved_step = saved

    def _overwrite(self) -> list[str]:
        """Writes in place, for a full disk: the blocks of the first record are allocated already."""
        from pathlib import Path

        from roost.base import durable

        try:
            durable.overwrite(Path(self.path), self._text())
        except OSError as error:
            return [f"nor could it be overwritten in place: {error}"]
        return []

    def _text(self) -> bytes:
        # One field per line without `indent`, which would use the Python encoder: half a millisecond.
        return json.dumps(self.fields, separators=(",\n ", ": "), allow_nan=False).encode() + b"\n"


def initial_fields(
    session: int, *, worker_pid: int | None, guard_pid: int, group: str | None
) -> SessionRecord:
    """Returns the record of a session that starts. Its supervisor writes it; before a restart the guard
    does, while there is no worker yet."""
    return SessionRecord(
        format=SESSION_FORMAT,
        session=session,
        state="running",
        **process_fields(os.getpid()),
        guard_pid=guard_pid,
        guard_start_ticks=process_identity.start_ticks(guard_pid),
        worker_pid=worker_pid,
        cgroup=group,
        started=time.time(),
    )


def _peak_memory_mb() -> float:
    """Returns the peak of the largest single child process, in MB."""
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return round(peak / (1024 if sys.platform == "linux" else 1024 * 1024), 1)
