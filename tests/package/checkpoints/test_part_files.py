"""Which rank writes which file, and that they are read again as one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from roost.base.errors import CheckpointError
from roost.base.state_tree import Leaf, make_leaf
from roost.package.checkpoints import part_files
from tests.messages import Messages

STATES: dict[str, Any] = {
    "model": {"weight": np.arange(6.0).reshape(3, 2), "name": "x"},
    "rank-0": {"rng": np.arange(3)},
    "trainer": {"step": 3},
}


def names(files: list[part_files.PartFile]) -> list[str]:
    return [file.name for file in files]


def test_rank_0_writes_all_and_the_others_their_own() -> None:
    assert names(part_files.pack(STATES)) == [
        "model.json", "model.safetensors", "rank-0.json", "rank-0.safetensors", "trainer.json",
    ]  # fmt: skip
    others = {"model": STATES["model"], "rank-2": STATES["rank-0"], "trainer": STATES["trainer"]}
    assert names(part_files.pack(others, rank=2)) == ["rank-2.json", "rank-2.safetensors"]


def test_shards_lie_apart() -> None:
    def sharded(value: Any) -> Leaf:
        found = make_leaf(value)
        return Leaf(found.dtype, found.shape, found.data, is_shard=found.shape == (3, 2))

    files = part_files.pack(STATES, leaf_of=sharded)
    assert names(files)[:2] == ["model.json", "model.shard-0.safetensors"]


def test_what_is_written_is_what_was_announced(tmp_path: Path) -> None:
    files = part_files.pack({**STATES, "big": {"x": np.zeros(3 << 20)}})
    assert [len(piece) for piece in files[-1].pieces()][1:] == [1 << 22] * 6
    entries = part_files.write(tmp_path, files)
    on_disk = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert {name: entry["bytes"] for name, entry in entries.items()} == on_disk
    assert {file.name: file.size_bytes for file in files} == on_disk
    assert part_files.size_bytes(files) == sum(on_disk.values())


def test_what_cannot_be_saved_is_named(messages: Messages) -> None:
    with pytest.raises(CheckpointError) as refused:
        part_files.pack({"bad": {"a": object()}})
    messages.check(refused.value)
    assert "'a'" in str(refused.value)
