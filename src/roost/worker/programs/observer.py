"""The observer of a program: a process beside it that turns what it writes into rows and progress.

``python -P -m roost.worker.programs.observer PACKAGE SESSION BYTE TIME`` reads, twice a second, what was
added to the output, to event files, CSV files and the file of reported calls, until its stdin is closed; then
once more. It is a process of its own because an expression of the user may take long, and the program must
not notice.
"""

# Not durable: removes the file of reported calls, whose content is in the rows

from __future__ import annotations

import json
import os
import re
import select
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from roost.base.system.worker_protocol import RESUME_VARIABLE
from roost.package import records, snapshot
from roost.package.package import PackageFolder
from roost.package.program_request import FOLDERS_WITHOUT_RESULTS, ProgramRequest
from roost.train.mirrors.event_files import EventFile
from roost.worker.programs import program_environment
from roost.worker.programs.csv_files import CsvFile
from roost.worker.programs.line_metrics import LineParser
from roost.worker.programs.own_lines import print_own
from roost.worker.programs.program_rows import ProgramRows, Source
from roost.worker.programs.program_task import calls_path

_SECONDS = 0.5
_SEARCH_SECONDS = 5.0
"""How often new event files and CSV files are searched for, and at the end."""
_MAX_OUTPUT = 1 << 22
"""So much new output is read at a time; of more, only the end."""
_MAX_CALLS = 1 << 24
_BAR_SECONDS = 1.0
"""A progress bar that is redrawn makes one row in this time."""
_MAX_FILES = 50
"""So many event files, and CSV files, are followed."""
_MAX_ENTRIES = 20_000
_EVENTS = "events.out.tfevents."
_PLACEHOLDER = ("hp_metric", -1.0)
"""Lightning writes it at step 0 whenever it starts: as a row it would hide those of the sessions before."""
_ENDS = re.compile(rb"[\r\n]")
_UNSEARCHED = FOLDERS_WITHOUT_RESULTS | snapshot.RESERVED_NAMES


class Observer:
    """Reads the sources of one session.

    Args:
        package: The package of the program.
        session: The number of the session.
        output_start: Where in the output it begins, in bytes.
        began: When the program was started, in Unix seconds; older files are not its own.
    """

    def __init__(self, package: Path, session: int, output_start: int, began: float) -> None:
        self._package = PackageFolder(package)
        request = self._package.request
        self._program = ProgramRequest.of(request)
        self._lines = LineParser(self._program.metrics)
        self._rows = ProgramRows(package, session, last_step=self._last_step(session))
        self._calls = calls_path(package, session)
        self._calls_offset = 0
        self._output_offset = output_start
        self._rest = b""
        self._began = began
        self._next_search = 0.0
        self._next_bar_row = 0.0
        self._copied = set(self._package.manifest.get("files", ()))
        self._events: dict[Path, EventFile] = {}
        self._csv: dict[Path, CsvFile] = {}
        self._folders: list[Path] = [] if self._program.cwd is None else [package]

    def _last_step(self, session: int) -> int:
        found = [
            row["step"]
            for number in range(session - 1, 0, -1)
            for row in records.read_tail(self._package.path / "records" / f"{number}.jsonl")[-1:]
        ]
        return int(found[0]) if found and RESUME_VARIABLE in os.environ else 0

    def run(self) -> None:
        """Observes until stdin is closed."""
        while not select.select([0], [], [], _SECONDS)[0]:
            self.read_all()
            program_environment.record(self._package.path, self._program.command)
        self.read_all(is_end=True)
        program_environment.record(self._package.path, self._program.command)
        for problem in self._lines.problems():
            print_own(problem)
        self._rows.close()
        self._calls.unlink(missing_ok=True)
        if shared := sorted(filter(self._is_written, self._package.manifest.get("links", ()))):
            print_own(
                f"written to outside of the package, through links of the copy: {', '.join(shared)}; "
                "other runs write to the same files"
            )

    def _is_written(self, name: str) -> bool:
        """Whether something behind a link of the copy is new since the session began, as far as it is looked
        at."""
        path, seen = self._package.path / name, 0
        if path.is_file():
            return not self._is_before(path)
        for folder, names, files in os.walk(path):
            seen += len(names) + len(files)
            if seen > _MAX_ENTRIES:
                return False
            if not all(self._is_before(Path(folder, one)) for one in files):
                return True
        return False

    def read_all(self, *, is_end: bool = False) -> None:
        """Reads everything that is new, the best sources first, as they become the clock of the rows."""
        if is_end or time.monotonic() >= self._next_search:
            self._search()
        self._read_calls()
        while self._read_files() and is_end:
            pass
        self._read_output(is_end=is_end)
        self._rows.publish()

    def _read_files(self) -> bool:
        """Reads the next part of each file; returns whether there was anything."""
        has_read = False
        for events in self._events.values():
            for scalar in events.new_scalars():
                if (scalar.tag, scalar.value) == _PLACEHOLDER:
                    continue
                self._rows.add(Source.EVENTS, scalar.step, {scalar.tag: scalar.value})
                has_read = True
        for file in self._csv.values():
            for row in file.new_rows():
                self._rows.add(Source.CSV, row.step, row.metrics)
                has_read = True
        return has_read

    # --- the output

    def _read_output(self, *, is_end: bool) -> None:
        try:
            with self._package.output.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                self._output_offset = min(self._output_offset, size)  # it was shortened
                if size - self._output_offset > _MAX_OUTPUT:
                    self._output_offset, self._rest = size - _MAX_OUTPUT, b""
                file.seek(self._output_offset)
                data = self._rest + file.read(size - self._output_offset)
        except OSError:
            return
        self._output_offset = size
        pieces = _ENDS.split(data)
        self._rest = b"" if is_end else pieces.pop()[-_MAX_OUTPUT:]
        for piece in pieces:
            if piece:
                self._read_line(piece.decode(errors="replace"))

    def _read_line(self, line: str) -> None:
        values = self._lines.parse(line)
        if values.is_redrawn:
            now = time.monotonic()
            if values.step != values.of and now < self._next_bar_row:
                values = values._replace(metrics={})
            elif values.metrics:
                self._next_bar_row = now + _BAR_SECONDS
        self._rows.add_line(values)

    # --- reported calls

    def _read_calls(self) -> None:
        try:
            with self._calls.open("rb") as file:
                file.seek(self._calls_offset)
                data = file.read(_MAX_CALLS)
        except OSError:
            return
        end = data.rfind(b"\n") + 1
        self._calls_offset += end
        for line in data[:end].splitlines():
            try:
                call = json.loads(line)
                self._add_call(call)
            except (ValueError, TypeError, AttributeError):  # not written by the hooks
                continue

    def _add_call(self, call: dict[str, Any]) -> None:
        if (folder := call.get("events")) is not None:
            if Path(folder) not in self._folders and len(self._folders) < _MAX_FILES:
                self._folders.append(Path(folder))
                self._next_search = 0.0
            return
        step = call.get("step")
        metrics = {str(name): float(value) for name, value in call["metrics"].items()}
        self._rows.add(Source.CALLS, step if isinstance(step, int) else None, metrics)

    # --- files

    def _search(self) -> None:
        self._next_search = time.monotonic() + _SEARCH_SECONDS
        for root in self._folders:
            for path in self._new_files(root):
                if path.name.startswith(_EVENTS) and len(self._events) < _MAX_FILES:
                    self._events.setdefault(path, EventFile(path))
                elif path.suffix == ".csv" and len(self._csv) < _MAX_FILES:
                    self._csv.setdefault(path, CsvFile(path))

    def _new_files(self, root: Path) -> Iterator[Path]:
        """Yields the event files and CSV files that the program has made or changed in this session."""
        seen = 0
        for folder, names, files in os.walk(root):
            if folder == str(self._package.path):
                names[:] = [name for name in names if name not in _UNSEARCHED]
            names[:] = [name for name in names if not name.startswith(".")]
            seen += len(names) + len(files)
            if seen > _MAX_ENTRIES:
                return
            for name in files:
                if not (name.startswith(_EVENTS) or name.endswith(".csv")):
                    continue
                path = Path(folder, name)
                if path.is_file() and not self._is_old(path):  # opening a pipe would wait
                    yield path

    def _is_old(self, path: Path) -> bool:
        return self._is_before(path) or os.path.relpath(path, self._package.path) in self._copied

    def _is_before(self, path: Path) -> bool:
        try:
            return path.stat().st_mtime < self._began - 1.0
        except OSError:
            return True


def main(arguments: list[str]) -> None:
    """Observes a session."""
    path, session, output_start, began = arguments
    try:
        Observer(Path(path), int(session), int(output_start), float(began)).run()
    except Exception as error:  # noqa: BLE001  - the output is the program's: a traceback there reads as its own
        text = " ".join(f"{type(error).__name__}: {error}".split())
        print_own(f"the observer has failed, metrics may be missing: {text}")


if __name__ == "__main__":
    main(sys.argv[1:])
