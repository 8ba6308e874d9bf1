"""The safetensors format: exchange of files with the safetensors library, and refused files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from roost.base import safetensors_format, state_tree
from roost.base.byte_tensors import ALIGNMENT
from roost.base.errors import CheckpointError
from roost.base.state_tree import Leaf
from tests.messages import Messages

STATE = {
    "float": torch.randn(3, 4, generator=torch.Generator().manual_seed(0)),
    "half": torch.ones(5, dtype=torch.float16),
    "brain": torch.arange(7).to(torch.bfloat16),
    "fp8": torch.arange(3.0).to(torch.float8_e4m3fn),
    "fp8 wide": torch.arange(3.0).to(torch.float8_e5m2),
    "double": torch.arange(3.0, dtype=torch.float64),
    "complex": torch.tensor([1 + 2j]),
    "bool": torch.tensor([True, False, True]),
    "byte": torch.arange(5, dtype=torch.uint8),
    "u16": torch.arange(3).to(torch.uint16),
    "u64": torch.arange(3).to(torch.uint64),
    "long": torch.tensor(5),
    "empty": torch.zeros(2, 0, 3),
    "view": torch.arange(12.0).reshape(3, 4).t(),
    "ünïcode \n name": torch.ones(1),
}


def written(leaves: Mapping[str, Leaf]) -> bytes:
    return b"".join(bytes(chunk) for chunk in safetensors_format.serialize(leaves))


def test_the_library_reads_ours(tmp_path: Path) -> None:
    skeleton, leaves = state_tree.pack({**STATE, "wide": torch.tensor([1 + 2j], dtype=torch.complex128)})
    (tmp_path / "a.safetensors").write_bytes(written(leaves))
    found = safetensors.torch.load_file(tmp_path / "a.safetensors")
    assert found.keys() == leaves.keys()
    for name, value in STATE.items():
        assert found[name].dtype == value.dtype and found[name].shape == value.shape, name
        assert found[name].flatten().view(torch.uint8).equal(value.flatten().view(torch.uint8)), name
    assert found["wide"].dtype == torch.uint8  # what the format lacks; the skeleton knows
    assert state_tree.unpack(skeleton, safetensors_format.parse(bytearray(written(leaves))))[
        "wide"
    ].tolist() == [1 + 2j]
    with safe_open(tmp_path / "a.safetensors", framework="numpy") as file:
        assert file.get_slice("double")[1:].tolist() == [1.0, 2.0]


def test_ours_reads_the_library(tmp_path: Path) -> None:
    state = {name: value.contiguous() for name, value in STATE.items()}
    safetensors.torch.save_file(state, tmp_path / "a.safetensors", metadata={"format": "pt"})
    skeleton, packed = state_tree.pack(state)
    leaves = safetensors_format.parse(bytearray((tmp_path / "a.safetensors").read_bytes()))
    assert leaves.keys() == packed.keys()
    found = state_tree.unpack(skeleton, leaves)
    for name, value in state.items():
        assert found[name].dtype == value.dtype and found[name].shape == value.shape, name
        assert found[name].flatten().view(torch.uint8).equal(value.flatten().view(torch.uint8)), name


def test_data_stands_without_holes_and_aligned() -> None:
    lines = {"line": torch.zeros(2, 8), "lines": torch.zeros(96, dtype=torch.bfloat16)}
    _, leaves = state_tree.pack({**STATE, **lines, "wide": torch.tensor([1 + 2j], dtype=torch.complex128)})
    data = written(leaves)
    size = int.from_bytes(data[:8], "little")
    assert (8 + size) % ALIGNMENT == 0
    header = json.loads(data[8 : 8 + size])
    spans = sorted((*entry["data_offsets"], name) for name, entry in header.items())
    assert spans[0][0] == 0 and 8 + size + max(end for _, end, _ in spans) == len(data)
    assert all(a[1] == b[0] for a, b in pairwise(spans))
    for begin, _, name in spans:
        shape = leaves[name].shape
        width = leaves[name].data.nbytes // int(np.prod(shape)) if np.prod(shape) else 1
        assert begin % (width if leaves[name].data.nbytes % ALIGNMENT else ALIGNMENT) == 0


def test_the_bytes_do_not_depend_on_the_order_of_the_state() -> None:
    _, leaves = state_tree.pack(STATE)
    _, turned = state_tree.pack(dict(reversed(STATE.items())))
    assert written(leaves) == written(turned)


def test_a_leaf_at_any_address_is_read() -> None:
    """An address that is no multiple of 16 once crashed the process for complex128."""
    value = torch.arange(64).to(torch.complex128)
    skeleton, leaves = state_tree.pack({"a": value})
    for shift in range(1, 16):
        room = memoryview(bytearray(shift + value.nbytes))[shift:]
        room[:] = leaves["a"].data
        assert state_tree.unpack(skeleton, {"a": Leaf("complex128", (64,), room)})["a"].equal(value)


def test_no_leaves_make_a_file_too() -> None:
    assert safetensors_format.parse(bytearray(written({}))) == {}


# --- hostile files ----------------------------------------------------------------------------------------


def file_of(header: Any, body: bytes = b"\0" * 16) -> bytearray:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return bytearray(len(text).to_bytes(8, "little") + text + body)


def entry(begin: Any, end: Any, **more: Any) -> dict[str, Any]:
    return {"a": {"dtype": "F32", "shape": [1], "data_offsets": [begin, end], **more}}


@pytest.mark.parametrize(
    "data",
    [
        b"", b"1234567", b"\xff" * 8, b"\xff" * 100, (10**12).to_bytes(8, "little") + b"{}",
        (100_000_001).to_bytes(8, "little") + b" " * 100, (3).to_bytes(8, "little") + b"{}",
        file_of(b"{"), file_of(b""), file_of(b"[]"), file_of(b"3"), file_of(b"null"), file_of(b"\xff\xfe"),
        file_of(b"[" * 100_000), file_of(b'{"a":' * 100_000), file_of(b"1" * 10_000),
        file_of({"a": 1}), file_of({"a": {}}), file_of({"a": []}), file_of({"a": {"dtype": "F32"}}),
        file_of({"a": {"dtype": "F32", "shape": [1]}}), file_of(entry(0, 17)), file_of(entry(-1, 4)),
        file_of(entry(8, 4)), file_of(entry(10**30, 10**30 + 4)), file_of(entry(0, None)),
        file_of(entry("0", "4")),
        file_of(entry(0.5, 4.5)), file_of({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0]}}),
        file_of({"a": {"dtype": "F32", "shape": [1], "data_offsets": 4}}), file_of(entry(0, 4, shape=4)),
        file_of(entry(0, 4, shape=None)), file_of(entry(True, [])),
    ],
    ids=lambda data: f"{len(data)}-{bytes(data[8:40])!r}",
)  # fmt: skip
def test_what_is_no_such_file_is_an_error(data: bytes) -> None:
    with pytest.raises(CheckpointError, match="safetensors"):
        safetensors_format.parse(bytearray(data))


@settings(max_examples=200, deadline=None)
@given(
    st.integers(0, 7),
    st.lists(st.tuples(st.integers(0), st.integers(0, 255)), min_size=1, max_size=5),
    st.data(),
)
def test_no_bytes_do_more_than_raise_our_error(
    cut: int, changes: list[tuple[int, int]], data: st.DataObject
) -> None:
    """Digests detect damage; these files were made on purpose."""
    skeleton, leaves = state_tree.pack({"a": torch.ones(3), "b": [torch.zeros(2, 2, dtype=torch.bfloat16)]})
    damaged = bytearray(written(leaves))
    for place, value in changes:
        damaged[place % len(damaged)] = value
    del damaged[len(damaged) - cut :]
    try:
        state_tree.unpack(skeleton, safetensors_format.parse(damaged))
    except CheckpointError as error:
        assert str(error)


def test_what_is_said_beside_the_tensors(tmp_path: Path) -> None:
    data = b"".join(
        map(
            bytes,
            safetensors_format.serialize({"x": state_tree.tensor_leaf(torch.ones(2))}, metadata={"of": "me"}),
        )
    )
    (tmp_path / "file").write_bytes(data)
    with safe_open(tmp_path / "file", "pt") as file:
        assert file.metadata() == {"of": "me"}
    assert list(safetensors_format.parse(bytearray(data))) == ["x"]
    assert safetensors_format.supports_dtype("bfloat16") and not safetensors_format.supports_dtype(
        "complex128"
    )


def test_what_ranks_wrote_in_shards_is_joined_row_by_row(messages: Messages) -> None:
    every = torch.arange(14.0).reshape(7, 2)
    wide = torch.arange(7).to(torch.complex128)  # a type that the format lacks: its bytes
    files = [
        safetensors_format.parse(bytearray(written(state_tree.pack(state)[1])))
        for state in (
            {"whole": torch.ones(3)},
            {"rows": every[:3], "wide": wide[:3]},
            {"rows": every[3:6], "wide": wide[3:6]},
            {"rows": every[6:], "wide": wide[6:], "alias": every[7:]},
        )
    ]
    joined = safetensors_format.JoinedLeaves(files)
    assert sorted(joined) == ["alias", "rows", "whole", "wide"] and len(joined) == 4
    skeleton = state_tree.pack({"rows": every, "wide": wide, "whole": torch.ones(3)})[0]
    found = state_tree.unpack(skeleton, joined)
    assert found["rows"].equal(every) and found["wide"].equal(wide) and found["whole"].equal(torch.ones(3))
    assert (state_tree.unpack(skeleton, joined, to="numpy")["rows"] == every.numpy()).all()
    with pytest.raises(CheckpointError) as refused:  # a rank's file is not there
        state_tree.unpack(skeleton, safetensors_format.JoinedLeaves(files[:3]))
    messages.check(refused.value)
    assert "48 bytes" in str(refused.value)
    with pytest.raises(CheckpointError) as refused:
        state_tree.unpack(skeleton, safetensors_format.JoinedLeaves(files[:1]))
    messages.check(refused.value)
    assert "'rows'" in str(refused.value)
