"""Sends the records and media of a package to a sink: all of them, once, and in order."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from roost.base import durable
from roost.package import records, sessions
from roost.package.records import Row
from roost.package.results.records_follower import RowsFollower
from roost.train.mirrors import mirror_completeness
from roost.train.mirrors.sink import SessionEnd, Sink, SinkPosition


class RecordFeed:
    """Sends rows and media to one sink and keeps its position.

    A sink that can rewind always has the folded records: if the run went back, or repeated a test, the sink
    is rewound and gets the rows that count now. A sink that cannot rewind gets each step once, even if the
    run goes back later: after an exact resume the repeated rows are equal.

    Args:
        package: The folder with ``records`` and ``media``.
        sink: The sink, not connected yet.
        note: The file that keeps the position of the sink; no file when None.
    """

    def __init__(self, package: Path, sink: Sink, note: Path | None = None) -> None:
        self._package, self._sink, self._note = package, sink, note
        self._rows, self._media = RowsFollower(package / "records"), MediaFeed(package / "media")
        self._headers: list[Row] = []
        self._position = SinkPosition()
        self._media_after = -1
        """For a sink that cannot rewind: it has the media up to this step."""
        self._newest: dict[frozenset[str], Row] = {}
        """The rows of the newest step, by the names of their metrics."""
        self._token = ""
        self._noted: dict[str, Any] = {}

    # ---- the sink and its position ------------------------------------------------------------------------

    def open(self) -> int:
        """Connects the sink and sends everything that it lacks; returns the number of rows sent.

        Raises:
            Exception: Any error of the sink.
        """
        state = self._state()
        self._position = self._sink.connect(state)
        noted = state.get("last_step", -1) if self._position.step >= 0 else -1
        headers = state.get("headers", 0)
        if not self._sink.can_rewind:
            # Some files of the last step may be missing; sending a file again is harmless.
            self._media_after = noted - 1
            self.save_position()  # the run's id, before anything is sent
            return self._send_after(-1)
        # More rows of the last noted step may have been recorded after the note.
        return self._send_after(noted - 1, headers)

    def _state(self) -> dict[str, Any]:
        state = (sessions.load_json(self._note) if self._note is not None else None) or {}
        if self._note is not None and not state.get("token"):
            # Written first: if a kill comes before the run's id is known, the run is found by the token.
            state["token"] = secrets.token_hex(4)
            durable.make_folder(self._note.parent, exist_ok=True)
            durable.write(self._note, sessions.to_json(state))
        self._token = state.get("token", "")
        return state

    def save_position(self) -> None:
        """Saves the position of the sink, which must be flushed.

        Raises:
            OSError: The file cannot be written.
        """
        self._save({})

    def _save(self, added: dict[str, Any]) -> None:
        far = {"last_step": self._last_step(), "headers": len(self._headers)}
        body = {**self._sink.state(), "token": self._token, **far, **added}
        if self._note is not None and body != self._noted:
            durable.write(self._note, sessions.to_json(body))
            self._noted = body

    def _last_step(self) -> int:
        return max((row["step"] for row in self._newest.values()), default=-1)

    def close(self, end: SessionEnd) -> None:
        """Flushes the sink, saves its position, closes it, and saves that it has all records
        (`mirror_completeness`)."""
        sizes = mirror_completeness.record_sizes(self._package)
        self._sink.flush()
        self.save_position()
        self._sink.close(end)
        self._save({mirror_completeness.KEY: sizes})

    def discard(self) -> None:
        """Closes a sink that has failed."""
        self._sink.close(None)

    # ---- sending ------------------------------------------------------------------------------------------

    def send_new(self) -> int:
        """Sends new rows and media and flushes; returns the number of rows.

        Raises:
            Exception: Any error of the sink. The sink must be discarded then, because it may have only a
                part.
        """
        new = [row for _, row in self._rows.new_rows()]
        went_back = [row["start_step"] for row in new if "start_step" in row]
        again = [row["step"] - 1 for row in new if self._is_double(row)]
        if self._sink.can_rewind and (went_back or again):
            # The step to which the run went back may be recorded again, too. Rows before that header may be
            # as new as the header, and there may be more rows of the last step that the sink has.
            return self._send_after(min([step - 1 for step in went_back] + again + [self._last_step() - 1]))
        self._headers += [row for row in new if "start_step" in row]
        return self._send([row for row in new if "start_step" not in row], self._media.new() if new else [])

    def _send_after(self, mark: int, known_headers: int | None = None) -> int:
        """Reads all records from the start and sends what comes after step ``mark``; from an earlier step if
        a header after the first ``known_headers`` ones says that the run went back."""
        self._rows, self._media = RowsFollower(self._package / "records"), MediaFeed(self._package / "media")
        new = [row for _, row in self._rows.new_rows()]
        media = self._media.new()
        self._headers = [row for row in new if "start_step" in row]
        self._newest = {}
        if self._sink.can_rewind:
            if known_headers is not None:
                unknown = self._headers[known_headers:]
                mark = min([mark, *(row["start_step"] - 1 for row in unknown)])
            self._sink.rewind(max(mark, -1))
        visible = [row for row in records.visible_rows(new) if row["step"] > mark]
        shown = [one for one in media if one.step > mark and not is_superseded(one, self._headers)]
        return self._send(visible, shown)

    def _is_double(self, row: Row) -> bool:
        return (
            "start_step" not in row
            and row["step"] == self._last_step()
            and _metric_names(row) in self._newest
        )

    def _send(self, rows: Sequence[Row], media: Sequence[MediaFile]) -> int:
        """Sends rows and media in order of their steps; the media of a step before its row."""
        waiting = list(reversed(media))
        sent = 0
        for row in rows:
            while waiting and waiting[-1].step <= row["step"]:
                self._send_media(waiting.pop())
            sent += self._send_row(row)
        while waiting:
            self._send_media(waiting.pop())
        self._sink.flush()
        return sent

    def _send_row(self, row: Row) -> bool:
        if row["step"] != self._last_step():
            self._newest = {}
        self._newest[_metric_names(row)] = row
        if self._sink.can_rewind:
            self._sink.write_row(row)
            return True
        step, names = self._position
        if row["step"] < step:
            return False
        known = names if row["step"] == step else frozenset()
        lacking = {name: value for name, value in row.items() if name not in known}
        found = frozenset(records.values(lacking))
        if not found:
            return False
        self._position = SinkPosition(row["step"], known | found)
        self._sink.write_row(lacking)
        return True

    def _send_media(self, file: MediaFile) -> None:
        if self._sink.can_rewind or file.step > self._media_after:
            self._sink.write_media(file.step, file.path)


def _metric_names(row: Row) -> frozenset[str]:
    return frozenset(records.metrics(row))


class MediaFile(NamedTuple):
    """A media file of a package."""

    step: int
    path: Path
    written: float
    """Seconds since 1970."""


class MediaFeed:
    """Finds the files in the folder ``media`` of a package, each once, and again if it was replaced.

    Args:
        folder: The folder ``media``; it need not exist yet.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._folders: dict[int, int] = {}
        self._files: dict[Path, int] = {}

    def new(self) -> list[MediaFile]:
        """Returns the files that are new since the last call, sorted by step."""
        found = [
            file for step, folder in self._changed_folders() for file in self._changed_files(step, folder)
        ]
        return sorted(found)

    def _changed_folders(self) -> Iterator[tuple[int, Path]]:
        """The folders in which a file was added or replaced: a rename changes the time of the folder
        itself."""
        try:
            entries = list(os.scandir(self._folder))
        except OSError:
            return
        for entry in entries:
            if entry.name.isdecimal() and entry.is_dir(follow_symlinks=False):
                changed = entry.stat(follow_symlinks=False).st_mtime_ns
                if self._folders.get(int(entry.name)) != changed:
                    self._folders[int(entry.name)] = changed
                    yield int(entry.name), Path(entry.path)

    def _changed_files(self, step: int, folder: Path) -> Iterator[MediaFile]:
        try:
            entries = list(os.scandir(folder))
        except OSError:
            return
        for entry in entries:
            if durable.is_staging(entry.name) or not entry.is_file(follow_symlinks=False):
                continue
            written, path = entry.stat(follow_symlinks=False).st_mtime_ns, Path(entry.path)
            if self._files.get(path) != written:
                self._files[path] = written
                yield MediaFile(step, path, written / 1e9)


_CLOCK_TOLERANCE_SECONDS = 1.0


def is_superseded(file: MediaFile, headers: Sequence[Row]) -> bool:
    """Whether the run went back to before the step of a file after the file was written: it belongs to steps
    that no longer count, until the step is taken again and replaces it."""
    times = [row["time"] for row in headers if row["start_step"] < file.step and "time" in row]
    return bool(times) and file.written < max(times) - _CLOCK_TOLERANCE_SECONDS
