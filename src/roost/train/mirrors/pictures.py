"""Pictures as PNG files, with the standard library."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path
from typing import Any

_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def size_of_png(data: bytes) -> tuple[int, int]:
    """(width, height) of a PNG.

    Raises:
        ValueError: It is none.
    """
    if len(data) < 24 or not data.startswith(_SIGNATURE) or data[12:16] != b"IHDR":
        raise ValueError("no PNG")
    width, height = struct.unpack(">II", data[16:24])
    return width, height


def is_drawn(path: Path) -> bool:
    """Whether a matrix has its picture beside it already."""
    return path.suffix == ".npy" and path.with_suffix(".png").exists()


def of_array(data: bytes) -> bytes:
    """A matrix, as ``numpy.save`` writes it, as a grey picture: its smallest number black, its largest white.

    Raises:
        ValueError: It is no array, or has not two dimensions.
    """
    import numpy as np  # a tenth of a second, and seldom needed

    array = np.load(io.BytesIO(data), allow_pickle=False)
    if array.ndim != 2 or not array.size or array.dtype.kind not in "fiub":
        raise ValueError("no matrix of numbers")
    values = np.nan_to_num(array.astype(np.float64))
    low, high = values.min(), values.max()
    grey = ((values - low) / ((high - low) or 1.0) * 255).round().astype(np.uint8)
    height, width = grey.shape
    no_filter = np.zeros((height, 1), np.uint8)
    lines = np.concatenate([no_filter, grey], axis=1)
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes())), (b"IEND", b"")]
    return _SIGNATURE + b"".join(_chunk(kind, body) for kind, body in parts)


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def pillow(data: bytes) -> Any:
    """A PNG as Pillow has it.

    Raises:
        ValueError: Pillow is not installed.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise ValueError("it needs Pillow: pip install pillow") from error
    return Image.open(io.BytesIO(data))
