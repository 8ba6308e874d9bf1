"""The rows of a run of DLNest: what the project has put into its log."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from roost.base import durable
from roost.package.records import RecordsWriter
from roost.project.dlnest.log_rows import LogRows
from roost.project.dlnest.project_loading import DlnestProject
from roost.train.progress import Progress


class LogRecorder:
    """Writes what is new in the log as rows: ``train/<name>``, or ``valid/<name>`` of what a validation adds.
    Only rank 0 records.

    Args:
        project: The project with the log.
    """

    def __init__(self, project: DlnestProject) -> None:
        self._project = project
        self._log_rows, self._row = LogRows(), dict[str, float]()
        self._writer: RecordsWriter | None = None
        self._has_warned = False
        self.results: dict[str, float] = {}
        """What the newest validation has added, if no step was taken since."""

    def begin(self, folder: Path, session: int, *, start_step: int) -> None:
        """Opens the file of a session."""
        if self._project.ranks.is_main:
            durable.make_folders(folder, below=folder.parent)
            self._writer = RecordsWriter(folder / f"{session}.jsonl", session=session, start_step=start_step)

    def skip_initial(self) -> None:
        """Leaves out of all rows what ``initLog`` has put into the log: it was not measured. A best value
        that only validations change would stand beside them for ever, as its first value in training."""
        self._log_rows.new_values(self._project.log)

    def collect(self, split: Literal["train", "valid"]) -> None:
        """Adds what is new in the log to the next row."""
        if not self._project.ranks.is_main:
            return
        new = self._log_rows.new_values(self._project.log)
        found = {f"{split}/{name}": value for name, value in new.items()}
        self._row.update(found)
        if split == "valid":
            self.results = found

    def write(self, progress: Progress) -> None:
        """Writes the row of this step, if there is anything new. A disk error is printed once; rows are kept
        until they can be written."""
        row, self._row = self._row, {}
        if not row or self._writer is None:
            return
        try:
            self._writer.row(progress.step, progress.epoch, row)
        except OSError as error:
            if not self._has_warned:
                print(f"records not written: {error}; they are kept and written later", flush=True)
            self._has_warned = True

    def sync(self) -> None:
        """Makes all rows so far durable.

        Raises:
            OSError: A row could not be written or synced.
        """
        if self._writer is not None:
            self._writer.sync()

    def close(self) -> None:
        """Closes the file."""
        if self._writer is not None:
            try:
                self._writer.close()
            except OSError as error:
                print(f"the last records could not be written: {error}", flush=True)
            self._writer = None

    def state_dict(self) -> dict[str, Any]:
        """Returns what was recorded of the log, and the values of the next row."""
        return {"seen": self._log_rows.state_dict(), "row": self._row, "results": self.results}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the result of `state_dict`."""
        self._log_rows.load_state_dict(state["seen"])
        self._row, self.results = dict(state["row"]), dict(state["results"])
