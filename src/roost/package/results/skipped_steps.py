"""Which steps a run has passed over: one JSON line for each, in one file that sessions append to.

It is read as the records are: what a later session went on from before, or a session went back behind, no
longer counts.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from roost.base import durable, safe_read

NAME = "skipped.jsonl"
_MAX_BYTES = 1 << 28

Kind = Literal["error", "nonfinite", "rollback", "empty"]
"""It raised; its loss or a gradient was not finite; a rollback passes over it; its batches were empty."""


class SkippedStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step that was passed over."""

    session: int
    step: int
    epoch: int
    batch: int
    """Number of its first micro-batch in the epoch."""
    kind: Kind
    error: str
    """One line."""
    samples: list[int]
    """Indices of the training set."""


class _Rewind(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The session goes on from this earlier step."""

    session: int
    start_step: int


def append(file: Path, skipped: SkippedStep) -> None:
    """Adds a step. It survives a power cut.

    Raises:
        OSError: It could not be written.
    """
    _append_line(file, skipped)


def append_rewind(file: Path, *, session: int, step: int) -> None:
    """What the session passed over after ``step`` no longer counts, for it goes on from there.

    Raises:
        OSError: It could not be written.
    """
    if file.exists():
        _append_line(file, _Rewind(session=session, start_step=step))


def encode_steps(steps: Iterable[SkippedStep]) -> bytes:
    """A file of steps that were read."""
    return b"".join(msgspec.json.encode(one) + b"\n" for one in steps)


def _append_line(file: Path, body: msgspec.Struct) -> None:
    line = msgspec.json.encode(body) + b"\n"
    if _lines(file)[-1]:
        line = b"\n" + line  # a full disk has left half a line
    fd = durable.open_append(file)
    try:
        durable.append(fd, line)
        durable.sync(fd)
    finally:
        os.close(fd)


def _lines(file: Path) -> list[bytes]:
    try:
        return bytes(safe_read.read(file, max_bytes=_MAX_BYTES)).split(b"\n")
    except OSError:
        return [b""]


def read(file: Path, starts: Sequence[tuple[int, int]] = ()) -> list[SkippedStep]:
    """The steps that the run has passed over, in their order, each once. Lines that are torn are left out.

    Args:
        file: A package's `NAME`; it need not exist.
        starts: (session, step that it went on from) of all sessions, as the records tell.
    """
    found: dict[int, SkippedStep] = {}
    for line in filter(None, _lines(file)):
        body = _decoded(line)
        if isinstance(body, _Rewind):
            found = {
                step: one
                for step, one in found.items()
                if one.session != body.session or step <= body.start_step
            }
        elif body is not None and not _is_undone(body, starts):
            found[body.step] = body
    return [found[step] for step in sorted(found)]


def _is_undone(skipped: SkippedStep, starts: Sequence[tuple[int, int]]) -> bool:
    return any(session > skipped.session and start < skipped.step for session, start in starts)


_decode_step: Any = msgspec.json.Decoder(SkippedStep).decode
_decode_rewind: Any = msgspec.json.Decoder(_Rewind).decode


def _decoded(line: bytes) -> SkippedStep | _Rewind | None:
    for decode in (_decode_step, _decode_rewind):
        try:
            return decode(line)  # type: ignore[no-any-return]
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
    return None
