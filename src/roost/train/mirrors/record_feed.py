"""Brings what a package has recorded to a sink: all of it, once, and in order."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from roost.base import durable
from roost.package import records, sessions
from roost.package.records import Row
from roost.package.records_follower import RowsFollower
from roost.train.mirrors.media_feed import MediaFeed, MediaFile, is_superseded
from roost.train.mirrors.sink import SessionEnd, Sink, SinkPosition


class RecordFeed:
    """One sink and how far it is.

    A sink that can_rewind holds the folded record at any time: where the run went back, or did a test again, it
    is taken back too and given what counts now. One that does not is given each step once, whatever becomes
    of it: after an exact resume the rows that come again are the same.

    Args:
        package: The folder that has ``records`` and ``media``.
        sink: Not connected yet.
        note: Where it is written down how far the sink is; nowhere when None.
    """

    def __init__(self, package: Path, sink: Sink, note: Path | None = None) -> None:
        self._package, self._sink, self._note = package, sink, note
        self._rows, self._media = RowsFollower(package / "records"), MediaFeed(package / "media")
        self._headers: list[Row] = []
        self._held = SinkPosition()
        self._media_after = -1
        """Of a sink that does not rewind: it has the media up to this step."""
        self._newest: dict[frozenset[str], Row] = {}
        """The rows of the newest step, by their names."""
        self._token = ""
        self._noted: dict[str, Any] = {}

    # ---- the sink, and what is known of it ----------------------------------------------------------------

    def open(self) -> int:
        """Connects the sink and gives it all that it lacks; gives how many rows those were.

        Raises:
            Exception: Whatever keeps the sink from taking it.
        """
        state = self._state()
        self._held = self._sink.connect(state)
        noted = state.get("last_step", -1) if self._held.step >= 0 else -1
        headers = state.get("headers", 0)
        if not self._sink.can_rewind:
            # Of the last step some may be missing. To send a file again does no harm.
            self._media_after = noted - 1
            self.save_position()  # the run's id, before anything is sent
            return self._begin(-1)
        # Of the step that was the last when it was noted, more may have come later.
        return self._begin(noted - 1, headers)

    def _state(self) -> dict[str, Any]:
        state = (sessions.load_json(self._note) if self._note is not None else None) or {}
        if self._note is not None and not state.get("token"):
            # Written first: where a kill comes before the run's id is known, the run is found again by it.
            state["token"] = secrets.token_hex(4)
            durable.make_folder(self._note.parent, exist_ok=True)
            durable.write(self._note, sessions.to_json(state))
        self._token = state.get("token", "")
        return state

    def save_position(self) -> None:
        """Writes down how far the sink is. Only of use to one that was flushed.

        Raises:
            OSError: It cannot be written.
        """
        far = {"last_step": self._last_step(), "headers": len(self._headers)}
        body = {**self._sink.state(), "token": self._token, **far}
        if self._note is not None and body != self._noted:
            durable.write(self._note, sessions.to_json(body))
            self._noted = body

    def _last_step(self) -> int:
        return max((row["step"] for row in self._newest.values()), default=-1)

    def close(self, end: SessionEnd) -> None:
        """Flushes, notes, and closes the sink."""
        self._sink.flush()
        self.save_position()
        self._sink.close(end)

    def discard(self) -> None:
        """Closes a sink that has failed."""
        self._sink.close(None)

    # ---- bringing -----------------------------------------------------------------------------------------

    def send_new(self) -> int:
        """Brings what is new, and flushes; gives the number of rows.

        Raises:
            Exception: Whatever keeps the sink from taking it. Then it must be given up: it may hold half.
        """
        new = [row for _, row in self._rows.new_rows()]
        went_back = [row["start_step"] for row in new if "start_step" in row]
        again = [row["step"] - 1 for row in new if self._is_double(row)]
        if self._sink.can_rewind and (went_back or again):
            # The step that it went back to may be recorded again, too. What came before that header may be
            # as new as the header; of the last step that the sink has, there may be more.
            return self._begin(min([step - 1 for step in went_back] + again + [self._last_step() - 1]))
        self._headers += [row for row in new if "start_step" in row]
        return self._bring([row for row in new if "start_step" not in row], self._media.new() if new else [])

    def _begin(self, mark: int, known_headers: int | None = None) -> int:
        """Reads everything from the start and brings what lies after ``mark``; before it too if a header
        after the first ``known_headers`` tells that the run went back."""
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
        return self._bring(visible, shown)

    def _is_double(self, row: Row) -> bool:
        return (
            "start_step" not in row
            and row["step"] == self._last_step()
            and _metric_names(row) in self._newest
        )

    def _bring(self, rows: Sequence[Row], media: Sequence[MediaFile]) -> int:
        """In order of their steps; what was seen in a step comes before its values."""
        waiting = list(reversed(media))
        sent = 0
        for row in rows:
            while waiting and waiting[-1].step <= row["step"]:
                self._show(waiting.pop())
            sent += self._give(row)
        while waiting:
            self._show(waiting.pop())
        self._sink.flush()
        return sent

    def _give(self, row: Row) -> bool:
        if row["step"] != self._last_step():
            self._newest = {}
        self._newest[_metric_names(row)] = row
        if self._sink.can_rewind:
            self._sink.write_row(row)
            return True
        step, names = self._held
        if row["step"] < step:
            return False
        known = names if row["step"] == step else frozenset()
        lacking = {name: value for name, value in row.items() if name not in known}
        found = frozenset(records.values(lacking))
        if not found:
            return False
        self._held = SinkPosition(row["step"], known | found)
        self._sink.write_row(lacking)
        return True

    def _show(self, medium: MediaFile) -> None:
        if self._sink.can_rewind or medium.step > self._media_after:
            self._sink.write_media(medium.step, medium.path)


def _metric_names(row: Row) -> frozenset[str]:
    return frozenset(records.metrics(row))
