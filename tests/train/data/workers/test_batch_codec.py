from __future__ import annotations

import gc
import weakref
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from roost.train.data.workers.batch_codec import EncodedBatch, decode

Pair = namedtuple("Pair", "x y")


@dataclass
class Sample:
    image: Tensor
    label: int


class Picture:
    """As of PIL: a class of its own, with its own way to be pickled."""

    def __init__(self, size: tuple[int, int], pixels: bytes) -> None:
        self.size, self.pixels = size, pixels

    def __getstate__(self) -> list[Any]:
        return [self.size, self.pixels]

    def __setstate__(self, state: list[Any]) -> None:
        self.size, self.pixels = state

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Picture) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]


def memory_of(value: Any) -> tuple[EncodedBatch, np.ndarray[Any, Any]]:
    packed = EncodedBatch(value)
    memory = np.full(packed.end + 7, 255, np.uint8)
    packed.write(memory.data)
    return packed, memory


def there_and_back(value: Any, *, pin: bool = False) -> Any:
    packed, memory = memory_of(value)
    return decode(memory, packed.begin, packed.end, pin=pin)


def raw(tensor: Tensor) -> bytes:
    """Bit for bit, of any type."""
    return tensor[None].view(torch.uint8).contiguous().numpy().tobytes()


PLAIN = [one for one in (getattr(torch, name) for name in dir(torch)) if isinstance(one, torch.dtype)]
QUANTIZED = {torch.qint8, torch.quint8, torch.qint32, torch.quint4x2, torch.quint2x4}


@pytest.mark.filterwarnings("ignore:ComplexHalf support")
@pytest.mark.parametrize("dtype", sorted(set(PLAIN) - QUANTIZED, key=str), ids=str)
def test_every_type(dtype: torch.dtype) -> None:
    bits = torch.arange(24 * dtype.itemsize, dtype=torch.uint8)
    value = (bits % 2 == 1) if dtype == torch.bool else bits.view(dtype)
    found = there_and_back([value, value.view(4, -1)[::2, 1:3], value[3]])
    for one, other in zip([value, value.view(4, -1)[::2, 1:3], value[3]], found, strict=True):
        assert other.dtype == dtype and other.shape == one.shape
        assert other.stride() == one.stride() and raw(other) == raw(one)


def with_channels_last() -> Tensor:
    return torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)


def inference() -> Tensor:
    with torch.inference_mode():
        return torch.randn(3, 4)[:, ::2]


LAYOUTS = {
    "contiguous": torch.randn(3, 4),
    "a number": torch.tensor(3.5),
    "empty": torch.empty(0, 3),
    "empty, turned": torch.empty(3, 0, 2, dtype=torch.bfloat16).transpose(0, 2),
    "channels last": with_channels_last(),
    "turned": torch.randn(3, 4).T,
    "a slice": torch.randn(30)[4::2],
    "columns": torch.randn(6, 7)[:, 1:4],
    "expanded": torch.randn(3, 1).expand(3, 5),
    "expanded from one": torch.tensor(2.0).expand(1000, 1000),
    "the diagonal": torch.randn(4, 4).diagonal(),
    "little of much": torch.randn(100_000)[::10_000],
    "overlapping": torch.randn(10).unfold(0, 4, 1),
    "conjugated": torch.randn(4, 3, dtype=torch.complex64).conj(),
    "conjugated, turned": torch.randn(4, 3, dtype=torch.complex64).conj().T,
    "negated": torch.randn(4, dtype=torch.complex64).conj().imag,
    "trained": torch.randn(3, requires_grad=True),
    "computed": torch.randn(3, requires_grad=True) * 2,
    "a parameter": torch.nn.Parameter(torch.randn(3)),
    "in inference": inference(),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout(layout: str) -> None:
    value = LAYOUTS[layout]
    found = there_and_back({"x": value})["x"]
    assert torch.equal(found, value) and type(found) is type(value)
    assert found.dtype == value.dtype and found.requires_grad == value.requires_grad
    if layout not in ("little of much", "empty, turned", "negated"):
        assert found.stride() == value.stride()
    assert not found.is_conj() and not found.is_neg()


def test_little_of_much_goes_as_little() -> None:
    assert EncodedBatch(torch.randn(1_000_000)[::100_000]).end < 1000
    assert EncodedBatch(torch.tensor(2.0).expand(1000, 1000)).end < 1000


@pytest.mark.filterwarnings("ignore::UserWarning")  # of what torch calls experimental or deprecated
def test_other_layouts_go_by_pickle() -> None:
    dense = torch.eye(3)
    coo, csr, nested, quantized, meta = there_and_back(
        [
            dense.to_sparse(),
            dense.to_sparse_csr(),
            torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
            torch.quantize_per_tensor(dense, 0.5, 1, torch.qint8),
            torch.empty(2, device="meta"),
        ]
    )
    assert torch.equal(coo.to_dense(), dense) and torch.equal(csr.to_dense(), dense)
    assert [len(one) for one in nested.unbind()] == [2, 3]
    assert torch.equal(quantized.dequantize(), dense) and meta.shape == (2,)


ARRAYS = {
    "float": np.arange(12.0).reshape(3, 4),
    "half": np.arange(3, dtype=np.float16),
    "long double": np.arange(3, dtype=np.longdouble),
    "complex": np.arange(3, dtype=np.complex64),
    "bool": np.array([True, False]),
    "a number": np.array(3.5),
    "empty": np.zeros((0, 3)),
    "Fortran's order": np.asfortranarray(np.arange(12.0).reshape(3, 4)),
    "backwards": np.arange(5)[::-1],
    "columns": np.arange(12).reshape(3, 4)[:, 1:3],
    "broadcast": np.broadcast_to(np.arange(3), (4, 3)),
    "other byte order": np.arange(3, dtype=">f4"),
    "fields": np.array([(1, 2.5)], dtype=[("a", "i4"), ("b", "f8")]),
    "times": np.array(["2026-11-20"], dtype="M8[s]"),
    "text": np.array(["a", "bc"]),
    "objects": np.array([None, {"a": 1}], dtype=object),
    "not aligned": np.frombuffer(b"\0" + np.arange(3.0).tobytes(), np.uint8)[1:].view(np.float64),
}


@pytest.mark.parametrize("kind", ARRAYS)
def test_every_array(kind: str) -> None:
    value = ARRAYS[kind]
    found = there_and_back((value,))[0]
    assert found.dtype == value.dtype and found.shape == value.shape
    assert np.array_equal(found, value) and found.flags.writeable


def test_arrays_of_other_kinds(tmp_path: Path) -> None:
    mapped = np.memmap(tmp_path / "x", np.int16, "w+", shape=(4,))
    mapped[:] = [1, 2, 3, 4]
    frozen = np.arange(3)
    frozen.flags.writeable = False
    masked = np.ma.masked_array([1, 2], [True, False])
    found = there_and_back([mapped, frozen, masked, np.float32(2), np.datetime64("2026-11-20")])
    assert found[0].tolist() == [1, 2, 3, 4]
    found[1][0] = 7
    assert found[1].tolist() == [7, 1, 2] and frozen[0] == 0
    assert found[2].mask.tolist() == [True, False]
    assert type(found[3]) is np.float32 and found[4] == np.datetime64("2026-11-20")


def test_every_nest() -> None:
    value = {
        "pair": Pair(torch.ones(2), [1, 2.5, None, "text", b"bytes", True]),
        "sample": Sample(torch.zeros(3), 7),
        "picture": Picture((1, 2), b"ab"),
        "ordered": OrderedDict(b=torch.arange(3), a=np.arange(2)),
        ("a", 1): {frozenset({1}), 3j},
        "dtype": torch.float32,
        "nothing": None,
    }
    found = there_and_back(value)
    assert list(found) == list(value) and type(found["pair"]) is Pair
    assert torch.equal(found["pair"].x, torch.ones(2)) and found["pair"].y == value["pair"].y  # type: ignore[attr-defined]
    assert type(found["sample"]) is Sample and found["sample"].label == 7
    assert found["picture"] == value["picture"] and list(found["ordered"]) == ["b", "a"]
    assert found[("a", 1)] == value[("a", 1)] and found["dtype"] is torch.float32


LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(),
    st.lists(st.integers(0, 4), max_size=3).map(lambda shape: torch.randn(shape)),
    st.lists(st.integers(0, 4), max_size=3).map(lambda shape: np.random.default_rng(0).random(shape)),
)
NESTS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(), inner, max_size=4), st.tuples(inner, inner)
    ),
    max_leaves=12,
)


def are_equal(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor):
        return isinstance(other, Tensor) and one.shape == other.shape and torch.equal(one, other)
    if isinstance(one, np.ndarray):
        return isinstance(other, np.ndarray) and one.shape == other.shape and np.array_equal(one, other)
    if isinstance(one, dict):
        return list(one) == list(other) and all(are_equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(are_equal, one, other))
    return type(one) is type(other) and bool(one == other)


@settings(max_examples=100, deadline=None)
@given(NESTS)
def test_any_nest(value: Any) -> None:
    assert are_equal(value, there_and_back(value))


SHAPES = st.lists(st.integers(1, 5), min_size=1, max_size=4)


@settings(max_examples=100, deadline=None)
@given(SHAPES, st.randoms(use_true_random=False), st.integers(1, 3), st.integers(0, 2))
def test_any_view(shape: list[int], chance: Any, step: int, offset: int) -> None:
    order = list(range(len(shape)))
    chance.shuffle(order)
    value = (
        torch.arange(5**4)
        .view(5, 5, 5, 5)[tuple(slice(0, n) for n in shape)]
        .permute(*order, *range(len(shape), 4))[offset::step]
    )
    found = there_and_back(value)
    assert found.shape == value.shape and torch.equal(found, value)


def test_one_object_stays_one() -> None:
    tensor, array, text = torch.ones(3), np.ones(3), ["x"]
    found = there_and_back([tensor, array, text, tensor, array, text])
    assert found[0] is found[3] and found[1] is found[4] and found[2] is found[5]
    assert EncodedBatch([tensor, tensor]).end < EncodedBatch([tensor, tensor.clone()]).end


def test_what_comes_out_is_a_view_that_may_be_written_to() -> None:
    packed, memory = memory_of([torch.zeros(4), np.zeros(4), torch.zeros(4, 4)[:, 1:3]])
    tensor, array, strided = decode(memory, packed.begin, packed.end)
    before = memory.copy()
    tensor += 1
    assert (memory != before).any(), "a view"
    before = memory.copy()
    array += 1
    assert (memory != before).any()
    strided += 1
    assert array.tolist() == [1] * 4 and tensor.tolist() == [1] * 4 and strided.sum() == 8


@pytest.mark.parametrize(
    "value", [torch.ones(3), torch.ones(3, 3)[1:, 1:], np.ones(3), {"a": [torch.ones(2, 2)]}]
)
def test_any_view_of_it_keeps_the_memory(value: Any) -> None:
    packed, memory = memory_of(value)
    gone = weakref.ref(memory)
    found = decode(memory, packed.begin, packed.end)
    del memory
    if isinstance(found, dict):
        found = found["a"][0]
    part = found[1:].reshape(-1)[:1]
    del found
    gc.collect()
    assert gone() is not None and float(part[0]) == 1
    del part
    assert gone() is None, "and nothing else does"


@pytest.mark.parametrize("value", [[1, "a"], torch.empty(0), np.zeros(3, object)])
def test_what_has_no_views_keeps_nothing(value: Any) -> None:
    packed, memory = memory_of(value)
    gone = weakref.ref(memory)
    found = decode(memory, packed.begin, packed.end)
    del memory
    assert gone() is None and found is not None


def test_pinned_tensors_are_copies_and_so_is_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    pinned: list[Tensor] = []

    def pin_memory(self: Tensor) -> Tensor:
        pinned.append(self)
        return self.clone()

    monkeypatch.setattr(Tensor, "pin_memory", pin_memory)
    value = [torch.ones(3), torch.ones(4, 4)[1:, ::2], np.ones(3), torch.tensor(2.0), torch.empty(0)]
    packed, memory = memory_of(value)
    found = decode(memory, packed.begin, packed.end, pin=True)
    assert len(pinned) == 3 and are_equal(found, value) and found[1].stride() == value[1].stride()
    memory[:] = 0
    assert are_equal(found, value)
    assert are_equal(value, there_and_back(value)) and len(pinned) == 3, "only where it was asked for"


def test_what_cannot_be_pickled_says_so() -> None:
    with pytest.raises(Exception, match="pickle"):
        EncodedBatch([torch.ones(2), lambda: 3])
