"""The codec of every state: values and aliases survive a round trip, or raise a clear error."""

from __future__ import annotations

import contextlib
import enum
import json
import math
import subprocess
import sys
import threading
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from roost.base import safetensors_format, state_tree
from roost.base.errors import CheckpointError
from tests.messages import Messages


def through_a_file(value: Any, *, to: str = "torch") -> Any:
    """What a checkpoint does: both files as bytes, and back."""
    skeleton, leaves = state_tree.pack(value)
    text = json.dumps(skeleton, allow_nan=False)
    data = bytearray(b"".join(bytes(chunk) for chunk in safetensors_format.serialize(leaves)))
    return state_tree.unpack(json.loads(text), safetensors_format.parse(data) if leaves else {}, to=to)  # type: ignore[arg-type]


def same(a: Any, b: Any) -> bool:
    """Equal in type and value, NaN being equal to itself and -0.0 differing from 0.0."""
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        a, b = a.resolve_conj(), b.resolve_conj()
        bits = a.dtype == b.dtype and a.shape == b.shape
        return bits and a.contiguous().flatten().view(torch.uint8).equal(
            b.contiguous().flatten().view(torch.uint8)
        )
    if isinstance(a, np.ndarray | np.generic):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, dict):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a.items(), b.items(), strict=True))
    if isinstance(a, list | tuple | deque):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, set | frozenset):
        return same(sorted(a, key=_order), sorted(b, key=_order))
    if isinstance(a, float):
        return repr(a) == repr(b)
    if isinstance(a, complex):
        return repr(a) == repr(b)
    return bool(a == b)


def _order(value: Any) -> str:
    """A set inside of a set may tell its members in any order."""
    return repr(sorted(value)) if isinstance(value, frozenset) else repr(value)


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().flatten().view(torch.uint8)


# --- plain values -----------------------------------------------------------------------------------------

atoms = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(), st.complex_numbers()
)
keys = st.one_of(
    st.text(), st.integers(), st.booleans(), st.none(), st.binary(), st.tuples(st.integers(), st.text())
)
hashables = st.one_of(st.integers(), st.text(), st.booleans(), st.frozensets(st.integers(), max_size=3))


def _nests(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    few = st.lists(inner, max_size=4)
    return st.one_of(
        few,
        few.map(tuple),
        st.dictionaries(keys, inner, max_size=4),
        st.dictionaries(st.sampled_from(["$", "a", "items", "leaf", "__metadata__"]), inner, max_size=4),
        st.dictionaries(st.text(), inner, max_size=3).map(OrderedDict),
        st.builds(deque, few, st.one_of(st.none(), st.integers(4, 8))),
        st.sets(hashables, max_size=4),
        st.dictionaries(st.text(), st.integers(), max_size=3).map(Counter),
    )


_SHAPES = st.lists(st.integers(0, 3), max_size=3).map(tuple)
_KINDS = [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.float8_e4m3fn, torch.complex128]


def _tensor(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.randint(0, 2, shape, generator=torch.Generator().manual_seed(1)).to(dtype)


tensor_values = st.builds(_tensor, _SHAPES, st.sampled_from(_KINDS))
array_values = st.builds(
    lambda shape, kind: (np.arange(math.prod(shape)) % 2).astype(kind).reshape(shape),
    _SHAPES,
    st.sampled_from(["f4", "f8", "i2", "u8", "?", "c16", "f2"]),
)
states = st.recursive(st.one_of(atoms, tensor_values, array_values), _nests, max_leaves=15)


@settings(max_examples=300, deadline=None)
@given(states)
def test_any_nest_comes_back(state: Any) -> None:
    assert same(through_a_file(state), state)


@pytest.mark.parametrize(
    "value",
    [
        math.nan, math.inf, -math.inf, -0.0, 5e-324, complex(math.nan, -math.inf), complex(-0.0, 0.0),
        2**64 - 1, -(2**200), "", "\udcff", "\x00", {"$": 1}, {"$": "tensor", "leaf": "x"}, {1: 2, "1": 3},
        {True: "a", 2: "b"}, {None: 0}, {(1, (2, "x")): 3}, {1.5: 1, math.inf: 2}, {b"k": 1},
        (), [], {}, set(), frozenset({1}), {frozenset({1}): 2}, {1, "1"}, deque([1, 2], maxlen=5), deque(),
        Counter("hello"), OrderedDict([("b", 1), ("a", 2)]), [[[[]]]], b"\x00\xff", Path("/a/b"),
        torch.float32, torch.bfloat16, torch.device("cpu"), torch.device("cuda:3"),
    ],
    ids=repr,
)  # fmt: skip
def test_a_plain_value_comes_back(value: Any) -> None:
    assert same(through_a_file(value), value)
    assert same(through_a_file({"deep": [(value,)]}), {"deep": [(value,)]})


@pytest.mark.parametrize(
    "few",
    [
        [0.5, -0.0, math.nan, math.inf, -math.inf, 5e-324],
        [1, -(2**63), 2**63 - 1],
        [1, 2**63],
        [1, True],
        [1.5, 1],
        [True, False],
        [np.float32(0.1), np.float32(-0.0)],
        [np.int8(3)],
        [np.bool_(True)],
        [np.float32(1), np.float64(1)],
        [np.datetime64("2020-01-01")],
        [None],
    ],
    ids=repr,
)  # fmt: skip
def test_a_long_list_comes_back(few: list[Any]) -> None:
    values = few * 100
    assert same(through_a_file({"a": values, "b": values}), {"a": values, "b": values})
    assert same(through_a_file({"a": values}, to="numpy"), {"a": values})


@pytest.mark.parametrize("number", [0.25, 7, np.float32(0.1)])
def test_a_long_list_of_numbers_is_an_array(number: Any) -> None:
    """The log of a run has such lists, and is saved whole each time."""
    skeleton, leaves = state_tree.pack({"log": [number] * 100_000})
    assert len(json.dumps(skeleton)) < 200 and leaves["log"].shape == (100_000,)


class Colour(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Loss(float):
    pass


def test_what_is_nearly_plain_comes_back_plain() -> None:
    point = namedtuple("point", "x y")(1, 2)
    assert same(through_a_file([Colour.RED, Level.HIGH, point, torch.Size([2])]), ["red", 3, (1, 2), (2,)])
    assert same(through_a_file([Loss(0.5), Loss("nan")]), [0.5, math.nan])
    assert same(through_a_file([np.str_("a"), np.bytes_(b"b")]), ["a", b"b"])
    assert same(through_a_file(defaultdict(lambda: [3], {1: [2]})), {1: [2]})


@pytest.mark.parametrize("factory", [list, dict, set, int, float, str, None])
def test_a_defaultdict_keeps_its_factory_without_a_pickle(factory: Any) -> None:
    """Also where the caller would pickle what is not plain: a log has them often."""
    others: list[tuple[str, Any]] = []
    value = {"history": defaultdict(factory, {"loss": [1.0], 3: [torch.ones(2)]})}
    skeleton, leaves = state_tree.pack(value, others=others)
    found = state_tree.unpack(json.loads(json.dumps(skeleton)), leaves)["history"]
    assert others == [] and same(found, value["history"]) and found.default_factory is factory
    own = defaultdict(lambda: [3])
    assert state_tree.pack({"own": own}, others=others)[1] == {} and others == [("own", own)]


@pytest.mark.parametrize("depth", [100, 190])
@pytest.mark.parametrize("wrap", [lambda v: [v], lambda v: (v,), lambda v: {"a": v}, lambda v: {1: v}])
def test_deep_nests_come_back(depth: int, wrap: Any) -> None:
    value: Any = 1
    for _ in range(depth):
        value = wrap(value)
    skeletons: list[Any] = []
    # A thread of its own: what is proven must not hang on how deep pytest calls.
    thread = threading.Thread(target=lambda: skeletons.append(through_a_file(value)))
    thread.start()
    thread.join()
    assert skeletons and repr(skeletons[0]) == repr(value)


def test_a_nest_without_end_is_an_error(messages: Messages) -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(CheckpointError) as refused:
        state_tree.pack({"a": endless})
    messages.check(refused.value)
    circle: dict[Any, Any] = {}
    circle[1] = (circle,)
    with pytest.raises(CheckpointError) as refused:
        state_tree.pack(circle)
    messages.check(refused.value)


# --- tensors ----------------------------------------------------------------------------------------------

DTYPES = sorted({v for v in vars(torch).values() if isinstance(v, torch.dtype)}, key=str)


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_comes_back_or_is_refused(dtype: torch.dtype) -> None:
    """Whatever this torch has: bit for bit the same, or an error when it is saved; never later."""
    try:
        raw = torch.arange(48, dtype=torch.uint8)
        value = (raw % 2).to(torch.bool) if dtype == torch.bool else raw.view(dtype)
    except RuntimeError:
        pytest.skip(f"torch itself cannot make one of {dtype} from bytes")
    try:
        found = through_a_file({"t": value, "part": value[1:2]})
    except CheckpointError as error:
        assert "'t'" in str(error)
        assert dtype not in _KINDS
    else:
        assert same(found, {"t": value, "part": value[1:2]})


@pytest.mark.parametrize(
    "dtype", [*_KINDS, torch.uint16, torch.float16, torch.complex64, torch.float8_e5m2], ids=str
)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (2, 3, 4)], ids=str)
def test_every_shape_comes_back(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    value = torch.zeros(shape, dtype=dtype)
    assert same(through_a_file([value]), [value])


def test_values_that_compare_unequal_come_back() -> None:
    value = torch.tensor([math.nan, math.inf, -math.inf, -0.0, 1e-45])
    assert same(through_a_file(value), value)


def test_views_come_back_as_what_they_show() -> None:
    base = torch.arange(24.0).reshape(2, 3, 4)
    state = {
        "base": base,
        "transposed": base.transpose(0, 2),
        "strided": base[:, ::2, 1::2],
        "expanded": torch.tensor([1.0]).expand(3, 5),
        "flipped": base.flip(0),
        "overlapping": torch.arange(5.0).as_strided((3, 3), (1, 1)),
        "row": base[1, 1],
        "reshaped": base.reshape(6, 4),
    }
    assert same(through_a_file(state), state)


@pytest.mark.parametrize("shape", [(1,), (1, 1), (3,), (2, 3)])
def test_expanded_tensors_come_back(shape: tuple[int, ...]) -> None:
    """Of a single element torch holds even a stride of 0 for contiguous."""
    value = torch.arange(6.0)[4:5].expand(shape)
    assert same(through_a_file(value), value)


def test_lazy_views_of_one_memory_are_not_mixed_up() -> None:
    value = torch.tensor([1 + 2j, 3 - 4j])
    state = {"value": value, "conjugate": value.conj(), "negative": value.conj().imag, "imag": value.imag}
    found = through_a_file(state)
    assert found["conjugate"].tolist() == [1 - 2j, 3 + 4j]
    assert found["negative"].tolist() == [-2.0, 4.0]
    assert found["imag"].tolist() == [2.0, -4.0]


@pytest.mark.parametrize(
    ("value", "stride"),
    [
        (torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last), (60, 1, 15, 3)),
        (torch.ones(2, 3, 2, 4, 5).to(memory_format=torch.channels_last_3d), (120, 1, 60, 15, 3)),
        (torch.arange(6.0).reshape(2, 3).t(), (1, 3)),
        (torch.arange(24.0).reshape(2, 3, 4), (12, 4, 1)),
    ],
)  # fmt: skip
def test_the_layout_in_memory_comes_back(value: torch.Tensor, stride: tuple[int, ...]) -> None:
    value = torch.empty_like(value).copy_(torch.arange(float(value.numel())).reshape(value.shape))
    found = through_a_file(value)
    assert found.stride() == value.stride() == stride
    assert found.equal(value)


def test_an_alias_is_stored_once_and_is_one_object_again() -> None:
    shared, array = torch.ones(3, 4), np.ones(5)
    state = {
        "a": shared,
        "b": {"c": shared.detach(), "d": shared.clone(), "t": shared.t()},
        "n": [array, array],
    }
    _, leaves = state_tree.pack(state)
    assert sorted(leaves) == ["a", "b.d", "b.t", "n.0"]
    found = through_a_file(state)
    assert found["a"] is found["b"]["c"]
    assert found["a"] is not found["b"]["d"]
    assert found["n"][0] is found["n"][1]
    found["a"].add_(1)
    assert found["b"]["c"].eq(2).all() and found["b"]["d"].eq(1).all()


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 4)
        self.head = nn.Linear(4, 10, bias=False)
        self.head.weight = self.embedding.weight


def test_tied_weights_take_one_leaf() -> None:
    model, other = Tied(), Tied()
    _, leaves = state_tree.pack(model.state_dict())
    assert list(leaves) == ["embedding.weight"]
    other.load_state_dict(through_a_file(model.state_dict()))
    assert other.head.weight is other.embedding.weight
    assert same(dict(other.state_dict()), dict(model.state_dict()))


def test_empty_tensors_and_equal_values_are_not_taken_for_aliases() -> None:
    found = through_a_file([torch.empty(0), torch.empty(0), torch.ones(2), torch.ones(2)])
    assert found[0] is not found[1] and found[2] is not found[3]


def test_what_comes_back_owns_its_memory() -> None:
    value = torch.ones(4)
    skeleton, leaves = state_tree.pack(value)
    found = state_tree.unpack(skeleton, leaves)
    value.zero_()
    assert found.eq(1).all()
    loaded = through_a_file({"a": np.ones(3)})["a"]
    loaded += 1  # writable


def test_parameters_come_back_as_tensors_without_a_graph() -> None:
    weight = nn.Parameter(torch.ones(2))
    found = through_a_file({"p": weight, "computed": weight * 2})
    assert not found["p"].requires_grad and found["computed"].eq(2).all()


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.eye(3).to_sparse(),
        lambda: torch.ones(3, device="meta"),
        lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
    ],
    ids=["sparse", "meta", "quantized"],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_tensor_without_plain_memory_is_refused(make: Callable[[], torch.Tensor]) -> None:
    with pytest.raises(CheckpointError, match=r"'model\.odd'"):
        state_tree.pack({"model": {"odd": make()}})


# --- arrays -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        np.arange(6, dtype=">f4").astype(">f4"), np.arange(6, dtype=">i8").reshape(2, 3), np.array(1.5),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.arange(10)[::3], np.zeros((0, 3), "f2"),
        np.array(["a", "bcd"]), np.array([b"x", b"yz"]), np.array(["2026-01-01"], dtype="M8[D]"),
        np.array([5], dtype="m8[ms]"), np.array([1 + 2j], dtype="c8"), np.array([], dtype="U3"),
        np.broadcast_to(np.float32(2), (3, 2)), np.array([1.5], dtype=np.longdouble),
    ],
    ids=lambda value: f"{value.dtype}{value.shape}",
)  # fmt: skip
def test_an_array_comes_back(value: np.ndarray[Any, Any]) -> None:
    found = through_a_file([value])[0]
    assert found.dtype == value.dtype.newbyteorder("=") and found.shape == value.shape
    assert np.array_equal(found, value)


@pytest.mark.parametrize(
    "value",
    [
        np.float32(1.5), np.float64("nan"), np.int8(-3), np.uint64(2**64 - 1), np.bool_(True),
        np.complex64(1j), np.datetime64("2026-01-01T00:00:01"), np.timedelta64(5, "s"),
        np.float16(0.1), np.float64(-0.0),
    ],
    ids=repr,
)  # fmt: skip
def test_a_scalar_comes_back(value: np.generic) -> None:
    assert same(through_a_file([value])[0], value)
    if value == value:
        assert same(through_a_file({value: 1}), {value: 1})


@pytest.mark.parametrize(
    "value",
    [
        np.array([object()]), np.zeros(2, dtype=[("a", "f4")]), np.ma.masked_array([1, 2], mask=[0, 1]),
        np.zeros(3, dtype="V4"), np.rec.array([(1, 2.0)]),
    ],
    ids=lambda value: type(value).__name__ + str(value.dtype),
)  # fmt: skip
def test_an_array_that_would_lose_something_is_refused(value: np.ndarray[Any, Any]) -> None:
    with pytest.raises(CheckpointError, match=r"'a\.0'"):
        state_tree.pack({"a": [value]})


# --- what torch saves -------------------------------------------------------------------------------------


def _trained(make: Any, steps: int) -> tuple[nn.Module, Any]:
    layout = torch.contiguous_format if make is OPTIMIZERS["LBFGS"] else torch.channels_last  # all it can
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(64, 2))
    model = model.to(memory_format=layout)
    optimizer = make(model.parameters())
    _steps(model, optimizer, steps)
    return model, optimizer


def _steps(model: nn.Module, optimizer: Any, steps: int) -> None:
    images = torch.randn(4, 3, 6, 6, generator=torch.Generator().manual_seed(1))

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(images).square().mean()
        loss.backward()
        return loss

    for _ in range(steps):
        optimizer.step(closure)


OPTIMIZERS = {
    "AdamW": lambda p: torch.optim.AdamW(p, lr=1e-2, amsgrad=True),
    "AdamW tensor lr": lambda p: torch.optim.AdamW(p, lr=torch.tensor(1e-2)),
    "SGD": lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9, nesterov=True),
    "LBFGS": lambda p: torch.optim.LBFGS(p, lr=0.1, max_iter=3),
    "Adafactor": lambda p: torch.optim.Adafactor(p),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=1e-3, momentum=0.5),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_goes_on_as_if_nothing_had_happened(name: str) -> None:
    make = OPTIMIZERS[name]
    straight, _ = _trained(make, steps=5)
    model, optimizer = _trained(make, steps=3)
    state = through_a_file({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    assert same(state["optimizer"], dict(optimizer.state_dict()))

    fresh, other = _trained(make, steps=0)
    fresh.load_state_dict(state["model"])
    other.load_state_dict(state["optimizer"])
    _steps(fresh, other, 2)
    for a, b in zip(fresh.parameters(), straight.parameters(), strict=True):
        assert a.equal(b) and a.stride() == b.stride()


def test_schedulers_come_back() -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=0.1, momentum=0.9)
    rates = torch.optim.lr_scheduler
    parts = [rates.LinearLR(optimizer, total_iters=3), rates.CosineAnnealingLR(optimizer, T_max=7)]
    sequence = rates.SequentialLR(optimizer, parts, milestones=[3])
    for _ in range(5):
        optimizer.step()
        sequence.step()
    state = sequence.state_dict()
    assert same(through_a_file(state), state)
    cycle = rates.OneCycleLR(torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=0.1, momentum=0.9), 1.0, 10)
    assert through_a_file(cycle.state_dict())["total_steps"] == 10


def test_random_states_come_back() -> None:
    import random

    state = {"torch": torch.get_rng_state(), "python": random.getstate(), "numpy": np.random.get_state()}
    found = through_a_file(state)
    assert same(found, state)
    random.setstate(found["python"])
    np.random.set_state(found["numpy"])
    torch.set_rng_state(found["torch"])
    generator = np.random.default_rng(3)
    generator.bit_generator.state = through_a_file(generator.bit_generator.state)
    assert generator.random() == np.random.default_rng(3).random()


# --- what is neither --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value", [len, lambda: 0, object(), Tied, sys, iter([]), range(3), slice(1), 1j.__class__]
)
def test_an_object_is_refused_with_its_place(value: Any, messages: Messages) -> None:
    with pytest.raises(CheckpointError) as caught:
        state_tree.pack({"model": {"layers": [0, {"odd": value}]}})
    messages.check(caught.value)
    assert "'model.layers.1.odd'" in str(caught.value)
    assert type(value).__qualname__ in str(caught.value)
    assert "state_dict()" in str(caught.value)


def test_an_open_file_and_a_key_that_is_an_object_are_refused(tmp_path: Path) -> None:
    with (tmp_path / "a").open("w") as file, pytest.raises(CheckpointError, match=r"TextIOWrapper.*'log'"):
        state_tree.pack({"log": file})
    with pytest.raises(CheckpointError, match="key0"):
        state_tree.pack({"a": {object(): 1}})


# --- without torch ----------------------------------------------------------------------------------------


def test_numpy_readers_never_import_torch(tmp_path: Path) -> None:
    state = {
        "w": torch.arange(3.0),
        "half": torch.ones(2, dtype=torch.bfloat16),
        "f8": torch.ones(2).to(torch.float8_e5m2),
        "a": np.arange(2),
        "dtype": torch.float32,
        "device": torch.device("cpu"),
        "empty": torch.empty(0, 2),
        "channels": torch.ones(1, 2, 3, 3).to(memory_format=torch.channels_last),
    }
    skeleton, leaves = state_tree.pack(state)
    (tmp_path / "s.json").write_text(json.dumps(skeleton))
    (tmp_path / "s.safetensors").write_bytes(
        b"".join(bytes(chunk) for chunk in safetensors_format.serialize(leaves))
    )
    program = (
        "import json, pathlib, sys\n"
        "from roost.base import safetensors_format as tensors; from roost.base import state_tree as tree\n"
        "folder = pathlib.Path(sys.argv[1])\n"
        "leaves = tensors.parse(bytearray((folder / 's.safetensors').read_bytes()))\n"
        "found = tree.unpack(json.loads((folder / 's.json').read_text()), leaves, to='numpy')\n"
        "packed, again = tree.pack(found)\n"
        "print(json.dumps({k: [str(v.dtype), v.shape, v.tolist()] if hasattr(v, 'shape') else v"
        " for k, v in found.items()}))\n"
        "sys.exit('torch' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["w"] == ["float32", [3], [0.0, 1.0, 2.0]]
    assert found["half"] == ["uint16", [2], [0x3F80, 0x3F80]]
    assert found["f8"][:2] == ["uint8", [2]]
    assert found["empty"] == ["float32", [0, 2], []]
    assert found["dtype"] == "float32" and found["device"] == "cpu"
    assert found["channels"][1] == [1, 2, 3, 3]


# --- hostile skeletons ------------------------------------------------------------------------------------


FOUR = {"x": state_tree.Leaf("float32", (1,), memoryview(bytearray(4)))}


@pytest.mark.parametrize("to", ["torch", "numpy"])
@pytest.mark.parametrize(
    "skeleton",
    [
        {"$": "function"}, {"$": "float"}, {"$": "float", "value": "one"}, {"$": "float", "value": []},
        {"$": ["tensor"]}, {"$": None}, {"$": {}}, {"$": "tuple"}, {"$": "tuple", "items": 3},
        {"$": "dict", "items": [[1]]}, {"$": "dict", "items": [[[], 1]]}, {"$": "dict", "items": [1]},
        {"$": "set", "items": [[1]]}, {"$": "set", "items": len}, {"$": "bytes", "value": "?"},
        {"$": "bytes", "value": 5}, {"$": "complex", "value": ["1"]}, {"$": "complex", "value": "ab"},
        {"$": "deque", "items": [], "maxlen": -1}, {"$": "deque", "items": []}, {"$": "path", "value": 3},
        {"$": "Counter", "items": [["a"]]}, {"$": "tensor"}, {"$": "tensor", "leaf": "y"},
        {"$": "tensor", "leaf": [], "dtype": "float32", "shape": [1]},
        {"$": "tensor", "leaf": "x", "dtype": "float32", "shape": [2**62]},
        {"$": "tensor", "leaf": "x", "dtype": "float32", "shape": [-1, -1]},
        {"$": "tensor", "leaf": "x", "dtype": "float32", "shape": ["a"]},
        {"$": "tensor", "leaf": "x", "dtype": "float32", "shape": 1},
        {"$": "tensor", "leaf": "x", "dtype": "float32"},
        {"$": "tensor", "leaf": "x", "dtype": "float64", "shape": [1]},
        {"$": "array", "leaf": "x", "dtype": "O", "shape": [0]},
        {"$": "array", "leaf": "x", "dtype": "O", "shape": [1]},
        {"$": "array", "leaf": "x", "dtype": "f4,f4", "shape": [1]},
        {"$": "array", "leaf": "x", "dtype": "float32", "shape": [10**30]},
        {"$": "scalar", "leaf": "x", "dtype": "<U0", "shape": []},
        {"$": "numbers"}, {"$": "numbers", "leaf": "x", "dtype": "float32", "shape": [2]},
        {"$": "scalars", "leaf": "x", "dtype": "float32", "shape": []},
    ],
    ids=str,
)  # fmt: skip
def test_a_hostile_skeleton_is_an_error(skeleton: Any, to: Any) -> None:
    with pytest.raises(CheckpointError):
        state_tree.unpack(skeleton, FOUR, to=to)


@pytest.mark.parametrize("depth", [500, 50_000])
@pytest.mark.parametrize("wrap", [lambda v: [v], lambda v: {"a": v}, lambda v: {"$": "tuple", "items": [v]}])
def test_a_skeleton_without_end_is_an_error(depth: int, wrap: Any, messages: Messages) -> None:
    skeleton: Any = 1
    for _ in range(depth):
        skeleton = wrap(skeleton)
    with pytest.raises(CheckpointError) as refused:
        state_tree.unpack(skeleton, {}, to="numpy")
    messages.check(refused.value)
    assert "200" in str(refused.value)


@pytest.mark.parametrize(
    "body",
    [
        {"dtype": "load", "shape": [1]}, {"dtype": "nope", "shape": [1]}, {"dtype": "__name__", "shape": [1]},
        {"dtype": "float32", "shape": [1], "order": [5]}, {"dtype": "float32", "shape": [1], "order": "x"},
        {"dtype": "float32", "shape": [1], "order": [0, 0]}, {"dtype": "float32", "shape": [1], "order": 3},
    ],
)  # fmt: skip
def test_a_hostile_tensor_is_an_error(body: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError):
        state_tree.unpack({"$": "tensor", "leaf": "x", **body}, FOUR)


def _bodies(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    kinds = [
        "tensor",
        "array",
        "scalar",
        "dict",
        "tuple",
        "set",
        "float",
        "bytes",
        "deque",
        "path",
        "complex",
    ]
    numbers = st.lists(st.integers(-2, 4), max_size=3)
    return st.fixed_dictionaries(
        {"$": st.sampled_from(kinds)},
        optional={
            "items": inner,
            "value": inner,
            "leaf": st.just("x"),
            "dtype": st.sampled_from(["float32", "O", "i4", "U1"]),
            "shape": numbers,
            "order": numbers,
            "maxlen": st.one_of(st.none(), st.integers(-1, 3)),
        },
    )


json_like = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["$", "items", "a"]), inner),
        _bodies(inner),
    ),
    max_leaves=12,
)


@settings(max_examples=400, deadline=None)
@given(json_like, st.sampled_from(["torch", "numpy"]))
def test_no_skeleton_does_more_than_raise_our_error(skeleton: Any, to: Any) -> None:
    with contextlib.suppress(CheckpointError):
        state_tree.unpack(skeleton, FOUR, to=to)


def test_tensors_go_to_a_device_and_tied_ones_stay_one() -> None:
    weight = torch.ones(2, 3)
    skeleton, leaves = state_tree.pack({"a": weight, "b": [weight], "n": np.arange(2), "t": 1.5})
    made = state_tree.move_to_device(state_tree.unpack(skeleton, leaves), "meta")
    assert made["a"].device.type == "meta" and made["a"].shape == (2, 3) and made["b"][0] is made["a"]
    assert list(made["n"]) == [0, 1] and made["t"] == 1.5


def test_whatever_holds_tensors_goes_along_and_stays_what_it_is() -> None:
    weight = torch.ones(2)
    value = {
        "tied": OrderedDict(a=weight, b=(weight, [weight])),
        "queue": deque([weight, 1], maxlen=3),
        "set": {weight},
        "count": Counter(x=2),
        "lists": defaultdict(list, {"a": [weight]}),
        3: "three",
    }
    made = state_tree.move_to_device(value, "meta")
    one = made["tied"]["a"]
    assert one.device.type == "meta" and type(made["tied"]) is OrderedDict and made["set"] == {one}
    assert made["tied"]["b"][0] is one and made["tied"]["b"][1][0] is one and made["queue"][0] is one
    assert made["lists"]["a"][0] is one and made["lists"]["new"] == []
    assert made["queue"].maxlen == 3 and made["count"] == Counter(x=2) and made[3] == "three"
