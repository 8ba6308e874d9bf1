"""PNG files, written with zlib of the standard library."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_COLOUR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}
"""The PNG colour type by number of channels: 1 grey, 2 grey with alpha, 3 RGB, 4 RGBA."""
_UP = 2
"""The PNG filter type Up: each line as its difference from the line above, mostly 0 in squares of one
colour."""


def encode(pixels: np.ndarray[Any, Any]) -> bytes:
    """Returns a picture as PNG bytes (Portable Network Graphics, ISO/IEC 15948).

    Args:
        pixels: (height, width) or (height, width, channels) uint8; grey, grey with alpha, RGB or RGBA.

    Raises:
        ValueError: The shape or the dtype is another one.
    """
    channels = pixels.shape[2] if pixels.ndim == 3 else 1
    if pixels.ndim not in (2, 3) or channels not in _COLOUR_TYPES or not pixels.size:
        raise ValueError(f"a picture must be (height, width) or (height, width, 1 to 4), not {pixels.shape}")
    if pixels.dtype != np.uint8:
        raise ValueError(f"a picture must be uint8, not {pixels.dtype}")
    height, width = pixels.shape[:2]
    lines = np.empty((height, 1 + width * channels), np.uint8)
    lines[:, 0] = _UP
    lines[:, 1:] = pixels.reshape(height, -1)
    lines[1:, 1:] -= lines[:-1, 1:]
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOUR_TYPES[channels], 0, 0, 0)
    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes())), (b"IEND", b"")]
    return _SIGNATURE + b"".join(_chunk(kind, body) for kind, body in parts)


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def size(data: bytes) -> tuple[int, int]:
    """Returns (width, height) of a PNG.

    Raises:
        ValueError: The bytes are not a PNG.
    """
    if len(data) < 24 or not data.startswith(_SIGNATURE) or data[12:16] != b"IHDR":
        raise ValueError("not a PNG")
    width, height = struct.unpack(">II", data[16:24])
    return width, height
