"""Packs the states of a checkpoint into files, and writes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from roost.base import durable, safetensors_format, state_tree
from roost.base.state_tree import Leaf
from roost.package.checkpoints import pickled_values

_PIECE_BYTES = 1 << 22
_NO_BYTES = memoryview(b"")


class PartFile(NamedTuple):
    """A file to write: given bytes, or leaves, whose bytes must not change until they are written."""

    name: str
    content: bytes
    leaves: Mapping[str, Leaf]
    is_pickle: bool = False
    """Whether it is to be signed with the user's key."""

    @property
    def size_bytes(self) -> int:
        """The size of the file."""
        return sum(memoryview(chunk).nbytes for chunk in self._chunks())

    def _chunks(self) -> Iterator[bytes | memoryview[Any]]:
        return safetensors_format.serialize(self.leaves) if self.leaves else iter([self.content])

    def pieces(self) -> Iterator[memoryview[Any]]:
        """Yields the bytes in pieces, each of which is hashed and written within a few milliseconds."""
        for chunk in self._chunks():
            view = memoryview(chunk)
            for start in range(0, view.nbytes, _PIECE_BYTES):
                yield view[start : start + _PIECE_BYTES]


def pack(
    states: Mapping[str, Any],
    *,
    rank: int = 0,
    leaf_of: Callable[[Any], Leaf] = state_tree.make_leaf,
    may_pickle: bool = False,
) -> list[PartFile]:
    """Returns the files that a rank writes: ``<part>.json`` and, with tensors, ``<part>.safetensors``; with
    values that only a pickle can hold, ``<part>.pickled.pt``.

    Rank 0 writes all parts; another rank writes its own part, ``rank-<rank>``. Of tensors that are sharded
    over the ranks, each rank writes its own shards, to ``<part>.shard-<rank>.safetensors``.

    Args:
        states: A state (see `roost.base.state_tree`) per name.
        rank: The rank that writes.
        leaf_of: Returns the leaf of a tensor or array that this rank writes.
        may_pickle: Whether a value that is neither plain data nor a tensor is pickled, instead of an error.

    Raises:
        CheckpointError: A state contains something that cannot be saved.
    """

    def shard_of(value: Any) -> Leaf:
        is_shard = state_tree.local_part(value)[1]
        return leaf_of(value) if is_shard else Leaf("uint8", (0,), _NO_BYTES)

    files = []
    for name, state in states.items():
        is_own = rank == 0 or name == f"rank-{rank}"
        others: list[tuple[str, Any]] | None = [] if may_pickle and is_own else None
        skeleton, leaves = state_tree.pack(state, leaf_of=leaf_of if is_own else shard_of, others=others)
        whole = {key: leaf for key, leaf in leaves.items() if not leaf.is_shard}
        shards = {key: leaf for key, leaf in leaves.items() if leaf.is_shard}
        if is_own:
            text = json.dumps(skeleton, allow_nan=False, separators=(",", ":")).encode()
            files.append(PartFile(f"{name}.json", text, {}))
            if whole:
                files.append(PartFile(f"{name}.safetensors", b"", whole))
            if others:
                pickle = pickled_values.dump(others)
                files.append(PartFile(f"{name}{pickled_values.SUFFIX}", pickle, {}, is_pickle=True))
        if shards:
            files.append(PartFile(f"{name}.shard-{rank}.safetensors", b"", shards))
    return files


def size_bytes(files: list[PartFile]) -> int:
    """Returns the size of all files together."""
    return sum(file.size_bytes for file in files)


def write(
    folder: Path,
    files: list[PartFile],
    *,
    paced: Callable[[Iterator[memoryview[Any]]], Iterator[memoryview[Any]]] = iter,
) -> dict[str, dict[str, Any]]:
    """Writes files into a staging folder; returns their entries in the manifest.

    Args:
        folder: The staging folder.
        files: The result of `pack`.
        paced: Limits the speed: yields the pieces of a file when each may be written.

    Raises:
        OSError: No space, an I/O error, …
    """
    entries = {}
    for file in files:
        digest = durable.write_new(folder / file.name, paced(file.pieces()))
        signature = pickled_values.signature_of(digest.sha256) if file.is_pickle else None
        entries[file.name] = {
            "bytes": digest.size,
            "sha256": digest.sha256,
            **({"signature": signature} if signature is not None else {}),
        }
    return entries
