"""The output of one call of a script in an analyzer, while it is printed, and its end."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from dataclasses import replace
from pathlib import Path

from roost.analysis import analysis_folder
from roost.analysis.analyzers import analyzer_folder
from roost.lab.queue.task import ENDED, PENDING, STARTING, Task
from roost.operations import lab
from roost.operations.analyzers.call_results import ScriptCall
from roost.operations.reading.output_reader import OutputReader
from roost.package.session_schema import SessionRecord
from roost.package.sessions import Session

_TICK_SECONDS, _FIRST_TICK_SECONDS = 0.05, 0.002
_TASK_SECONDS = 0.5
"""Between two reads of the queue while a call waits."""


def follow_call(call: ScriptCall) -> Iterator[bytes | str | Session]:
    """Yields the output of a call as it is printed, without the analyzer's own lines, then the ended session
    of the analysis. The caller may stop at any time: the call does not depend on its readers.

    Yields:
        Output; empty pieces while there is none; texts: why the call waits; one `Session` at the end.

    Raises:
        OSError: The output cannot be read.
    """
    place = Path(call.folder)
    session = yield from _wait_for_begin(call, place)
    begin = session.recorded.output_begin
    if begin is None:  # it never runs, and is being recorded as such
        while session.is_live:
            yield b""
            time.sleep(_TICK_SECONDS)
            session = analysis_folder.read(place)
        yield session
        return
    request = analysis_folder.AnalysisSessionRequest.from_json(session.request)
    output = Path(call.package) / analyzer_folder.NAME / str(request.analyzer) / analyzer_folder.OUTPUT
    with OutputReader(output, offset=begin) as reader:
        pause = _FIRST_TICK_SECONDS
        while True:
            # The state is read before the output, so that all output of an ended call is read.
            session = analysis_folder.read(place)
            end = session.recorded.output_end
            if not session.is_live:
                yield from _read_to(reader, end)
                yield session
                return
            found = False
            for piece in reader.read_new():
                found = True
                # The end of the call may be recorded between its last output and this read.
                end = analysis_folder.read(place).recorded.output_end
                yield _cut(piece, reader.offset, end)
            if not found:
                yield b""
            pause = _FIRST_TICK_SECONDS if found else min(_TICK_SECONDS, 2 * pause)
            time.sleep(pause)


def _read_to(reader: OutputReader, end: int | None) -> Iterator[bytes]:
    for piece in reader.read_new():
        yield _cut(piece, reader.offset, end)
        if end is not None and reader.offset >= end:
            return


def _cut(piece: bytes, offset: int, end: int | None) -> bytes:
    """Returns a piece, which was read up to ``offset``, without what is after ``end``."""
    return piece if end is None else piece[: max(0, len(piece) - max(0, offset - end))]


def _wait_for_begin(call: ScriptCall, place: Path) -> Generator[bytes | str, None, Session]:
    next_look, last_note, first_note = 0.0, None, time.monotonic() + _TASK_SECONDS
    pause = _FIRST_TICK_SECONDS
    while not (place / analysis_folder.RECORD).exists():
        if time.monotonic() >= next_look:
            next_look = time.monotonic() + _TASK_SECONDS
            with lab.open_queue() as store:
                task = store.task(call.task)
            is_queued = analyzer_folder.inbox(task.folder).is_queued(call.analysis)
            if task.state in ENDED or not is_queued:
                if (place / analysis_folder.RECORD).exists():
                    break
                why = f"the analyzer has {task.state}" if task.state in ENDED else "the call was removed"
                record = SessionRecord(state="crashed", error=why, exit_code=1, reason="analyzer")
                return replace(analysis_folder.read(place), record=record)
            note = lab.restart_lost_daemon()
            if note is None and time.monotonic() >= first_note:  # a warm analyzer begins at once
                note = _waiting_note(task)
            if note is not None and note != last_note:
                yield note
            last_note = note or last_note
        yield b""
        time.sleep(pause)
        pause = min(_TICK_SECONDS, 2 * pause)
    return analysis_folder.read(place)


def _waiting_note(task: Task) -> str:
    if task.state == PENDING:
        return f"the analyzer has not started yet: {task.reason or 'it waits'}"
    if task.state == STARTING:
        return "the analyzer starts"
    running = next((one.analysis for one in analyzer_folder.inbox(task.folder).begun()), None)
    if running is not None:
        return f"waiting for analysis {running} in {task.label} to end ..."
    return f"waiting for {task.label} to load {Path(task.package).name} ..."
