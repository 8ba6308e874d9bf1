"""IDX, the format of MNIST's files: a header with the dimensions, then one byte per pixel or label."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import roost


def read_idx(path: Path, *, sample: tuple[int, ...]) -> Tensor:
    """Reads a .gz file; returns uint8, (N, *sample).

    The content begins with four bytes: two zeros, 8 for "unsigned bytes", the number of dimensions. The
    length of each dimension follows, 32 bits, big-endian.

    Args:
        path: The file.
        sample: The shape of one sample: (28, 28) for a picture, () for a label.

    Raises:
        roost.RoostError: The file is damaged, or has another format or shape.
    """
    try:
        data = gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise _damaged(path, f"cannot be unpacked: {error}") from None
    dimensions = 1 + len(sample)
    magic, start = bytes([0, 0, 8, dimensions]), 4 + 4 * dimensions
    if data[:4] != magic:
        raise _damaged(path, f"begins with {data[:4].hex(' ') or 'nothing'} instead of {magic.hex(' ')}")
    if len(data) < start:
        raise _damaged(path, "ends before its dimensions do")
    shape = struct.unpack_from(f">{dimensions}I", data, 4)
    if shape[1:] != sample:
        raise _damaged(path, f"has samples of {shape[1:]} instead of {sample}")
    if len(data) - start != math.prod(shape):
        raise _damaged(path, f"holds {len(data) - start} bytes of data instead of {math.prod(shape)}")
    return torch.from_numpy(np.frombuffer(data, np.uint8, offset=start).reshape(shape).copy())


def _damaged(path: Path, problem: str) -> roost.RoostError:
    fix = "rename the file and run again; if the error remains, correct the file's line in mnist.sha256"
    return roost.RoostError(f"{path.name} {problem}", where=path, fix=fix)
