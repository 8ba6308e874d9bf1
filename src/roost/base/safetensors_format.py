"""The safetensors file format, written in chunks so that the bytes can be hashed and synced while they are
written.

The safetensors library writes a file without fsync and with mode 0600, and reads by mapping the file, so a
file that is truncated while its tensors exist kills the process. Here a file is read whole, hashed, then
viewed.
Format: https://huggingface.co/docs/safetensors (8 bytes header size, JSON header, data without holes).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from roost.base.byte_tensors import ALIGNMENT
from roost.base.errors import CheckpointError
from roost.base.state_tree import Leaf

_NAMES = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "uint16": "U16",
    "int16": "I16",
    "uint32": "U32",
    "int32": "I32",
    "uint64": "U64",
    "int64": "I64",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
    "complex64": "C64",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
}
_MAX_HEADER = 100_000_000


def supports_dtype(dtype: str) -> bool:
    """Whether the format has this dtype, by torch's name."""
    return dtype in _NAMES


def serialize(
    leaves: Mapping[str, Leaf], *, metadata: Mapping[str, str] | None = None
) -> Iterator[bytes | memoryview[Any]]:
    """Yields the bytes of a file: the header, then each leaf. A dtype that the format lacks is written as
    bytes.

    Args:
        leaves: The leaves by name.
        metadata: Texts for the header; other programs may read them.
    """
    # First the leaves whose size is a multiple of the alignment, then the others by width of their dtype, the
    # widest first, as the library does. Every leaf is then aligned for its dtype, and the large ones for
    # torch, without holes.
    ordered = sorted(
        leaves.items(), key=lambda item: (item[1].data.nbytes % ALIGNMENT > 0, -_width(item[1]), item[0])
    )
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    offset = 0
    for name, leaf in ordered:
        known = leaf.dtype in _NAMES
        header[name] = {
            "dtype": _NAMES.get(leaf.dtype, "U8"),
            "shape": list(leaf.shape) if known else [leaf.data.nbytes],
            "data_offsets": [offset, offset + leaf.data.nbytes],
        }
        offset += leaf.data.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    yield len(text).to_bytes(8, "little") + text
    for _, leaf in ordered:
        yield leaf.data


def _width(leaf: Leaf) -> int:
    count = 1
    for n in leaf.shape:
        count *= n
    return leaf.data.nbytes // count if count else 0


def parse(data: bytearray | memoryview[Any]) -> dict[str, Leaf]:
    """Returns the leaves of a file as views of its bytes, with the dtypes and shapes of the header.

    Raises:
        CheckpointError: The bytes are not a safetensors file.
    """
    view = memoryview(data)
    size = int.from_bytes(view[:8], "little")
    if len(view) < 8 or size > min(_MAX_HEADER, len(view) - 8):
        raise CheckpointError("the file is not a safetensors file: its header exceeds the file or the limit")
    try:
        header = json.loads(bytes(view[8 : 8 + size]))
        header.pop("__metadata__", None)
        return {name: _leaf(entry, view[8 + size :]) for name, entry in header.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"the file is not a safetensors file: {error}") from error


class JoinedLeaves(Mapping[str, Leaf]):
    """The leaves of several files. A leaf that ranks wrote in shards has the rows of all of them; it is
    joined when it is read, so that the leaves are never all in memory twice.

    Args:
        files: The results of `parse`, in the order of the ranks.
    """

    def __init__(self, files: Sequence[Mapping[str, Leaf]]) -> None:
        self._files = files

    def __getitem__(self, name: str) -> Leaf:
        parts = [file[name] for file in self._files if name in file]
        if not parts:
            raise KeyError(name)
        if len(parts) == 1:
            return parts[0]
        data = bytearray().join(part.data for part in parts)
        rows = sum(part.shape[0] for part in parts)
        return Leaf(parts[0].dtype, (rows, *parts[0].shape[1:]), memoryview(data))

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(name for file in self._files for name in file))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _leaf(entry: dict[str, Any], body: memoryview[Any]) -> Leaf:
    begin, end = entry["data_offsets"]
    if not 0 <= begin <= end <= len(body):
        raise ValueError(f"offsets {begin}:{end} are outside of {len(body)} bytes")
    return Leaf(entry["dtype"], tuple(entry["shape"]), body[begin:end])
