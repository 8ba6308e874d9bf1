"""The session record of a call, ``analysis/<m>/session.json``, which the analyzer itself writes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

from roost.analysis import analysis_folder
from roost.base import durable
from roost.package import sessions
from roost.package.seals import session_seal
from roost.package.session_schema import SESSION_FORMAT, SessionRecord

INTERRUPTED = "interrupted"
"""The reason of a call that a person interrupted."""
ANALYZER_ENDED = "analyzer"
"""The reason of a call whose analyzer ended before it."""


class CallEnd(NamedTuple):
    """How a call ended; the names are those of `SessionRecord`."""

    state: str
    exit_code: int
    reason: str
    error: str | None = None


def begin(folder: Path, *, output_begin: int | None) -> SessionRecord:
    """Writes the record of a call that begins, not durably: it is of use only as long as this process lives.

    Args:
        folder: The folder of the analysis.
        output_begin: Where its output will begin in that of the analyzer, in bytes; None: it never begins.

    Raises:
        OSError: The record cannot be written.
    """
    record = SessionRecord(
        format=SESSION_FORMAT,
        session=int(folder.name),
        state="running",
        **sessions.own_identity(),
        started=round(time.time(), 3),
        output_begin=output_begin,
    )
    durable.write_unsynced(folder / analysis_folder.RECORD, sessions.to_json(record))
    return record


def record_unrun(folder: Path, found: CallEnd) -> None:
    """Writes the end of a call that never began.

    Raises:
        OSError: A file cannot be written.
    """
    end(folder, begin(folder, output_begin=None), found, output_end=None)


def end(folder: Path, record: SessionRecord, found: CallEnd, *, output_end: int | None) -> None:
    """Writes the end of a call, and makes its folder durable and seals it.

    Raises:
        OSError: A file cannot be written.
    """
    record.state, record.exit_code, record.reason, record.error = found
    record.ended = round(time.time(), 3)
    record.seconds = round(max(0.0, record.ended - (record.started or record.ended)), 3)
    record.output_end = output_end
    for name in (analysis_folder.SCRIPT, analysis_folder.REQUEST):
        durable.sync_file(folder / name)
    durable.write(folder / analysis_folder.RECORD, sessions.to_json(record))
    session_seal.write_folder_seal(folder)
