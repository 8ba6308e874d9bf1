"""The inbox of an analyzer: ``analyzers/<n>/calls/``.

::

    3.json        a call that waits:     {"analysis": 7}, or
                                         {"checkpoint": 2 | "last" | "untrained", "switch": 1795160000123456}
    2.begun       the call that is carried out; removed at its end
    7.interrupt   a request to interrupt analysis 7, or to leave it out; likewise for a switch

Operations add files, the analyzer renames and removes them; each step is one atomic change of a name, so both
may be killed at any time. A call that an analyzer had begun when it was killed stays ``.begun``.
"""

# Not durable: a power cut ends the analyzer, too, and the analysis is stored in a folder of its own

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from roost.base import durable
from roost.package import sessions

_WAITING, _BEGUN, _INTERRUPT = ".json", ".begun", ".interrupt"
LAST, UNTRAINED = "last", "untrained"
"""What a switch may name in place of the id of a checkpoint."""


class CallRequest(NamedTuple):
    """A request to an analyzer: to run a script, or to switch the checkpoint."""

    seq: int
    analysis: int | None
    """The number of the analysis to run."""
    checkpoint: int | str | None
    """The checkpoint to load: its id, `LAST` or `UNTRAINED`."""
    switch: int | None = None
    """The number of the switch, in microseconds: never one of an analysis, or of another switch."""

    @property
    def number(self) -> int | None:
        """By which it is interrupted."""
        return self.analysis if self.analysis is not None else self.switch


class CallInbox:
    """The inbox in a folder, which is created with the first call.

    Args:
        folder: ``calls`` of an analyzer.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add_analysis(self, number: int) -> int:
        """Adds a call that runs an analysis, whose folder is complete; returns its place."""
        return self._add({"analysis": number})

    def add_switch(self, checkpoint: int | str) -> int:
        """Adds a call that loads another checkpoint; returns the number of the switch."""
        number = time.time_ns() // 1000
        self._add({"checkpoint": checkpoint, "switch": number})
        return number

    def _add(self, body: Mapping[str, Any]) -> int:
        self._make_folder()
        staging = durable.staging_name(self.folder / "call")
        durable.write_unsynced(staging, sessions.to_json(body))
        try:
            while True:
                seq = max((number for number, _ in self._entries()), default=0) + 1
                with contextlib.suppress(FileExistsError):  # another process was faster
                    os.link(staging, self.folder / f"{seq}{_WAITING}")  # never replaces a file
                    return seq
        finally:
            staging.unlink()

    def _make_folder(self) -> None:
        if not self.folder.is_dir():  # to make it durable takes milliseconds
            durable.make_folder(self.folder, exist_ok=True)

    def waiting(self) -> list[CallRequest]:
        """Returns the calls that have not begun, oldest first."""
        return self._calls(_WAITING)

    def begun(self) -> list[CallRequest]:
        """Returns the calls that an analyzer has begun: the one that runs, or was running when it ended."""
        return self._calls(_BEGUN)

    def is_queued(self, analysis: int) -> bool:
        """Whether an analysis waits or has begun."""
        return any(call.analysis == analysis for call in (*self.waiting(), *self.begun()))

    def _calls(self, suffix: str) -> list[CallRequest]:
        found = []
        for seq, name in sorted(self._entries()):
            if not name.endswith(suffix):
                continue
            body = sessions.load_json(self.folder / name)
            if body is None:  # removed meanwhile
                continue
            analysis, checkpoint, switch = (body.get(key) for key in ("analysis", "checkpoint", "switch"))
            found.append(
                CallRequest(
                    seq,
                    analysis if type(analysis) is int else None,
                    checkpoint if type(checkpoint) in (int, str) else None,
                    switch if type(switch) is int else None,
                )
            )
        return found

    def _entries(self) -> Iterator[tuple[int, str]]:
        return ((number, name) for number, name in self._numbered() if not name.endswith(_INTERRUPT))

    def _numbered(self) -> Iterator[tuple[int, str]]:
        try:
            names = os.listdir(self.folder)  # noqa: PTH208  - names alone
        except FileNotFoundError:
            return
        for name in names:
            stem, dot, suffix = name.partition(".")
            if stem.isdecimal() and f"{dot}{suffix}" in (_WAITING, _BEGUN, _INTERRUPT):
                yield int(stem), name

    # --- for the analyzer

    def begin(self, call: CallRequest) -> bool:
        """Marks a call as begun; False if it was withdrawn meanwhile."""
        try:
            (self.folder / f"{call.seq}{_WAITING}").rename(self.folder / f"{call.seq}{_BEGUN}")
        except FileNotFoundError:
            return False
        return True

    def end(self, call: CallRequest) -> None:
        """Removes a call that has begun. One that waits under its number stays: a process that looked before
        the call began may have added it."""
        (self.folder / f"{call.seq}{_BEGUN}").unlink(missing_ok=True)

    def withdraw(self, call: CallRequest) -> bool:
        """Removes a call that has not begun; False if it has, or was withdrawn by another process."""
        try:
            (self.folder / f"{call.seq}{_WAITING}").unlink()
        except FileNotFoundError:
            return False
        return True

    # --- the interrupts

    def request_interrupt(self, number: int) -> None:
        """Requests the analyzer to interrupt a call, or to leave it out if it waits.

        Args:
            number: That of the analysis, or of the switch.
        """
        self._make_folder()
        durable.write_unsynced(self.folder / f"{number}{_INTERRUPT}", b"")

    def interrupted(self) -> set[int]:
        """Returns the numbers of the calls that are to be interrupted."""
        return {number for number, name in self._numbered() if name.endswith(_INTERRUPT)}

    def is_interrupted(self, number: int) -> bool:
        """Whether a call is to be interrupted."""
        return (self.folder / f"{number}{_INTERRUPT}").exists()

    def remove_interrupt(self, number: int) -> None:
        """Removes the request to interrupt a call."""
        (self.folder / f"{number}{_INTERRUPT}").unlink(missing_ok=True)
