"""Scalars in TensorBoard's event files, also while they are written.

TensorBoard itself would read them, too; but the interpreter of roost need not have it, and of the format only
three messages are needed: `Event`, `Summary` and `TensorProto`, see tensorboard/compat/proto in its source.
"""

# Standard library only

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_HEADER = struct.Struct("<QI")
_FOOTER_BYTES = 4
_MAX_READ = 1 << 24
_MAX_RECORD_BYTES = 1 << 40
"""More than any record has: a larger length is damage, and no place in a file."""
_FLOAT, _DOUBLE = 1, 2
_SESSION_START = 1
"""Values of DataType and of SessionLog.SessionStatus."""


class Scalar(NamedTuple):
    """A scalar of an event file."""

    step: int
    tag: str
    value: float


class LoggedEvent(NamedTuple):
    """An event with its scalars."""

    step: int
    time: float
    """Unix seconds."""
    scalars: list[Scalar]
    is_start: bool
    """Whether the run began again at this step: all earlier events from it on no longer count."""


def read_events(path: Path) -> Iterator[LoggedEvent]:
    """Yields the events of a whole file that have scalars, or at which the run began again; after damage
    nothing more.

    Raises:
        OSError: The file cannot be read.
    """
    with path.open("rb") as file:
        while len(header := file.read(_HEADER.size)) == _HEADER.size:
            size, _ = _HEADER.unpack(header)
            if size > _MAX_RECORD_BYTES:
                return
            if size > _MAX_READ:  # a picture, or damage
                file.seek(size + _FOOTER_BYTES, os.SEEK_CUR)
                continue
            data = file.read(size + _FOOTER_BYTES)
            if len(data) < size + _FOOTER_BYTES:
                return
            with contextlib.suppress(ValueError, IndexError, struct.error):  # no event
                event = _event(data[:size])
                if event.scalars or event.is_start:
                    yield event


class EventFile:
    """Reads new scalars of one file again and again.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def new_scalars(self) -> Iterator[Scalar]:
        """Yields the scalars that were written since the last call. A record that is not complete yet is read
        by a later call; after damage nothing more is read."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read(_MAX_READ)
        except OSError:
            return
        at = 0
        while at + _HEADER.size <= len(data):
            size, _ = _HEADER.unpack_from(data, at)
            if size > _MAX_RECORD_BYTES:
                break
            end = at + _HEADER.size + size + _FOOTER_BYTES
            if end > len(data):
                if end - at > _MAX_READ:  # a picture, or damage
                    self._offset += end  # skipped without being read
                    return
                break
            with contextlib.suppress(ValueError, IndexError, struct.error):  # no event
                yield from _event(data[at + _HEADER.size : end - _FOOTER_BYTES]).scalars
            at = end
        self._offset += at


def _event(data: bytes) -> LoggedEvent:
    step, at, summary, is_start = 0, 0.0, b"", False
    for number, value in _fields(data):
        if number == 1 and isinstance(value, bytes):
            at = float(struct.unpack("<d", value)[0])
        elif number == 2 and isinstance(value, int):
            step = value if value < 2**63 else 0
        elif number == 5 and isinstance(value, bytes):
            summary = value
        elif number == 7 and isinstance(value, bytes):
            is_start = (1, _SESSION_START) in _fields(value)
    scalars = [
        scalar
        for number, value in _fields(summary)
        if number == 1 and isinstance(value, bytes)
        for scalar in _summary_value(step, value)
    ]
    return LoggedEvent(step, at, scalars, is_start)


def _summary_value(step: int, data: bytes) -> Iterator[Scalar]:
    tag, found, plugin = "", None, b""
    for number, value in _fields(data):
        if number == 1 and isinstance(value, bytes):
            tag = value.decode(errors="replace")
        elif number == 2 and isinstance(value, bytes):
            found = _simple(value)
        elif number == 8 and isinstance(value, bytes):
            found = _tensor(value) if found is None else found
        elif number == 9 and isinstance(value, bytes):
            plugin = value
    if found is not None and tag and (not plugin or b"scalars" in plugin):
        yield Scalar(step, tag, found)


def _simple(data: bytes) -> float:
    return float(struct.unpack("<f", data)[0])


def _tensor(data: bytes) -> float | None:
    """Returns the value of a tensor of floats with one element; None for any other tensor."""
    kind, content, values = 0, b"", b""
    for number, value in _fields(data):
        if number == 1 and isinstance(value, int):
            kind = value
        elif number == 4 and isinstance(value, bytes):
            content = value
        elif number in (5, 6) and isinstance(value, bytes):
            values = value
    code = {_FLOAT: "<f", _DOUBLE: "<d"}.get(kind)
    raw = content or values
    return float(struct.unpack(code, raw)[0]) if code and len(raw) == struct.calcsize(code) else None


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yields number and value of each field of a protocol buffer; fixed-size values as bytes."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        if kind == 2:
            size, at = _varint(data, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError(f"wire type {kind}")
        if at + size > len(data):
            raise ValueError("cut")
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")
