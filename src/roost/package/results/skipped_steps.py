"""The skipped steps of a run and the skipped batches of its evaluations: one JSON line for each, in one file
to which the sessions append.

Steps become invalid in the same way as rows of the records: when a later session continues from before them,
or their session goes back to before them.
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
TRAINING = "train"

Kind = Literal["error", "nonfinite", "rollback", "empty"]
"""The reason: an exception; a loss or gradient that is not finite; a rollback; empty batches."""


class SkippedStep(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A step that was skipped, or a batch of the evaluation after a step."""

    session: int
    step: int
    epoch: int
    batch: int
    """The number of its first micro-batch in the epoch; of an evaluation, that of the batch in the split."""
    kind: Kind
    error: str
    """One line."""
    samples: list[int]
    """Indices in the set."""
    ids: list[int | float | str] = []
    """The ids of these samples, of a batch of an evaluation whose set has ids."""
    split: str = TRAINING
    """The split of the evaluation, with the name of the set if there are several."""

    @property
    def is_step(self) -> bool:
        """Whether it is a step; otherwise a batch of an evaluation."""
        return self.split == TRAINING


class _Rewind(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A line that records that the session went back to an earlier step."""

    session: int
    start_step: int


def append(file: Path, skipped: SkippedStep) -> None:
    """Appends a step durably.

    Raises:
        OSError: It could not be written.
    """
    _append_line(file, skipped)


def append_rewind(file: Path, *, session: int, step: int) -> None:
    """Appends that the session went back to ``step``: the steps that it skipped after that no longer count.

    Raises:
        OSError: It could not be written.
    """
    if file.exists():
        _append_line(file, _Rewind(session=session, start_step=step))


def encode_steps(steps: Iterable[SkippedStep]) -> bytes:
    """Returns the bytes of a file with these steps."""
    return b"".join(msgspec.json.encode(one) + b"\n" for one in steps)


def _append_line(file: Path, body: msgspec.Struct) -> None:
    line = msgspec.json.encode(body) + b"\n"
    if _lines(file)[-1]:
        line = b"\n" + line  # the file ends with half a line, from a full disk
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
    """Returns the valid skipped steps and batches of a run, ascending by step, each once. Torn lines are left
    out.

    Args:
        file: A package's `NAME`; it need not exist.
        starts: For each session its number and the step from which it continued, see `Columns.starts`.
    """
    found: dict[tuple[int, bool, str, int], SkippedStep] = {}
    for line in filter(None, _lines(file)):
        body = _decoded(line)
        if isinstance(body, _Rewind):
            found = {
                place: one
                for place, one in found.items()
                if one.session != body.session or one.step <= body.start_step
            }
        elif body is not None and not _is_undone(body, starts):
            # A step is there once; the same batch of an evaluation may be, too, for a session repeats it.
            number = 0 if body.is_step else body.batch
            found[body.step, not body.is_step, body.split, number] = body
    return [found[place] for place in sorted(found)]


def format_counts(skipped: Sequence[SkippedStep]) -> str:
    """Returns the numbers in words: ``3 steps and 1 batch skipped``; empty for none."""
    steps = sum(one.is_step for one in skipped)
    numbers = {"step": steps, "batch": len(skipped) - steps}
    plurals = {"step": "steps", "batch": "batches"}
    parts = [f"{n} {name if n == 1 else plurals[name]}" for name, n in numbers.items() if n]
    return f"{' and '.join(parts)} skipped" if parts else ""


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
