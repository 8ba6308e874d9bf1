"""Reads the file of a W&B run that is not uploaded: LevelDB's log format
(https://github.com/google/leveldb/blob/main/doc/log_format.md) after a header of seven bytes, with one
protocol buffer per record."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HEADER = b":W&B\xe1\xbe"
"""How each file begins."""
_HEADER_BYTES = 7
_BLOCK_BYTES = 1 << 15
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


def records(data: bytes) -> Iterator[bytes]:
    """Yields the complete records; a process that was killed leaves a torn end."""
    if not data.startswith(HEADER):
        return
    at = _HEADER_BYTES
    parts: list[bytes] = []
    while at + _HEADER_BYTES <= len(data):
        left = _BLOCK_BYTES - at % _BLOCK_BYTES
        if left < _HEADER_BYTES:  # no header fits: the block's end is padding
            at += left
            continue
        checksum, length, kind = struct.unpack_from("<IHB", data, at)
        body = data[at + _HEADER_BYTES : at + _HEADER_BYTES + length]
        if len(body) < length or zlib.crc32(bytes([kind]) + body) != checksum:
            return
        at += _HEADER_BYTES + length
        parts = [body] if kind in (_FULL, _FIRST) else [*parts, body]
        if kind in (_FULL, _LAST):
            yield b"".join(parts)


def history(path: Path) -> Iterator[dict[str, Any]]:
    """Yields the logged values, one dict for each step, with its ``_step``."""
    from wandb.proto import wandb_internal_pb2 as proto

    for data in records(path.read_bytes()):
        record: Any = proto.Record.FromString(data)  # type: ignore[attr-defined]
        if record.HasField("history"):
            items = record.history.item
            yield {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in items}
