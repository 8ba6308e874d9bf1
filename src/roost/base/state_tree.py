"""The codec of every state: nested plain values, arrays and tensors <-> a JSON skeleton and leaves.

There is no pickle here: a value that is not plain data raises an error that names its path, or is handed to
the caller, who may store it. An alias (tied weights) is stored once and is one object again after `unpack`.
Torch is needed only to return tensors.
"""

from __future__ import annotations

import base64
import math
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any, Literal

import numpy as np

from roost.base import byte_tensors
from roost.base.errors import CheckpointError

Skeleton = Any
"""A value that `json.dumps` can write; a dict with the key "$" is a tagged value."""

_MAX_DEPTH = 200
_MIN_NUMBERS = 64
"""A list of so many numbers of one type is stored as an array. Packing and parsing them one by one would take
more than a microsecond for each, in every save of a long log."""
_SEQUENCES: dict[str, Callable[[list[Any]], Any]] = {
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
}
_MAPPINGS: dict[str, Callable[[list[tuple[Any, Any]]], Any]] = {
    "dict": dict,
    "OrderedDict": OrderedDict,
    "Counter": lambda pairs: Counter(dict(pairs)),
}
_FACTORIES: dict[str | None, Any] = {
    None: None,
    **{one.__name__: one for one in (list, dict, set, int, float, str)},
}
"""The factories of a `defaultdict` that is plain data."""


@dataclass(frozen=True)
class Leaf:
    """The bytes of one array or tensor, C-contiguous and in the machine's (little-endian) order."""

    dtype: str
    shape: tuple[int, ...]
    data: memoryview[Any]
    is_shard: bool = False
    """Whether other ranks have the rest of the array or tensor."""


@dataclass(frozen=True)
class Unread:
    """In the place of a value that `pack` handed to its caller, and that the reader did not ask for."""

    type: str
    """The path of the value's class."""


def _is_tensor(value: object) -> bool:
    torch = sys.modules.get("torch")  # a value cannot be a tensor where torch was never imported
    return torch is not None and isinstance(value, torch.Tensor)


def _array_leaf(array: np.ndarray[Any, Any]) -> Leaf:
    # Texts and times need the width or unit, which only `str` has; other readers know the `name`.
    dtype = array.dtype.newbyteorder("=")
    if dtype.kind not in "biufcmMSU" or dtype.itemsize == 0:
        raise TypeError(f"an array of type {dtype}")
    contiguous = np.ascontiguousarray(array, dtype=dtype)
    data = contiguous.reshape(-1).view(np.uint8).data if array.size else memoryview(b"")
    return Leaf(dtype.name if dtype.kind in "biufc" else dtype.str, array.shape, data)


def dtype_name(tensor: Any) -> str:
    """Returns the name of a tensor's dtype for its leaf.

    Raises:
        TypeError: The tensor is sparse or quantized.
    """
    name = str(tensor.dtype).removeprefix("torch.")
    if str(tensor.layout) != "torch.strided" or name.startswith("q"):  # qint8 needs a quantizer, too
        raise TypeError(f"a {tensor.layout} tensor of type {name}")
    return name


def tensor_leaf(tensor: Any) -> Leaf:
    """Returns a tensor's bytes; copies only a tensor that is not contiguous or not on the CPU.

    Raises:
        TypeError: The tensor is sparse or quantized.
    """
    torch = sys.modules["torch"]
    name = dtype_name(tensor)
    flat = tensor.detach().resolve_conj().resolve_neg().to("cpu").contiguous().reshape(-1)
    flat = flat.as_strided(flat.shape, (1,))  # with one element the stride may be 0, from `expand`
    data = memoryview(flat.view(torch.uint8).numpy()) if flat.numel() else memoryview(b"")
    return Leaf(name, tuple(tensor.shape), data)


def _order(tensor: Any) -> list[int] | None:
    """Returns the dimensions from the outermost in memory to the innermost, for a copy of the tensor; None
    for C order. The order must be kept: an optimizer's moments follow the layout of channels_last weights,
    and a step over two layouts may round differently."""
    if tensor.is_contiguous() or tensor.numel() == 0:
        return None
    strides = sys.modules["torch"].empty_like(tensor, device="meta").stride()
    order = sorted(range(tensor.dim()), key=lambda n: -strides[n])
    return None if order == sorted(order) else order


def local_part(tensor: Any) -> tuple[Any, bool]:
    """Returns the part of a tensor that this process has, and whether this is only a shard: some of its rows,
    in the order of the ranks.

    Raises:
        TypeError: The tensor is sharded by something else than rows.
    """
    placements = getattr(tensor, "placements", None)  # an attribute of torch's DTensor
    if placements is None or all(placement.is_replicate() for placement in placements):
        return (tensor if placements is None else tensor.detach().to_local()), False
    if len(placements) > 1 or not placements[0].is_shard(0):
        raise TypeError(f"a tensor with the placements {placements} (only shards of rows can be saved)")
    return tensor.detach().to_local(), True


def make_leaf(value: Any) -> Leaf:
    """Returns the bytes of a NumPy array or a tensor (of a sharded one, those of this process); copies them
    only if they are not contiguous or not on the CPU.

    Raises:
        TypeError: The value is of a kind that cannot be saved.
    """
    if not _is_tensor(value):
        return _array_leaf(value)
    own, is_shard = local_part(value)
    return replace(tensor_leaf(own), is_shard=is_shard)


class _Packer:
    def __init__(self, leaf_of: Callable[[Any], Leaf], others: list[tuple[str, Any]] | None) -> None:
        self._leaf_of, self._others = leaf_of, others
        self.leaves: dict[str, Leaf] = {}
        self._names: dict[Any, str] = {}
        self._packed: list[Any] = []  # keeps the values alive: an id is valid only as long as its object

    def pack(self, value: Any, path: str, depth: int = 0) -> Skeleton:
        if depth > _MAX_DEPTH:
            raise CheckpointError(
                f"the state is nested deeper than {_MAX_DEPTH}, or contains itself, at {path[:80]!r}"
            )
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return _float(value)
        if type(value) is list:
            if len(value) >= _MIN_NUMBERS and (array := _numbers(value)) is not None:
                kind = "scalars" if isinstance(value[0], np.generic) else "numbers"
                return {"$": kind, **self._leaf(array, path)}
            return [self.pack(item, f"{path}.{i}", depth + 1) for i, item in enumerate(value)]
        if type(value) is dict and "$" not in value and all(type(key) is str for key in value):
            return {key: self.pack(item, _join(path, key), depth + 1) for key, item in value.items()}
        if self._others is None:
            return self._tagged(value, path, depth)
        return self._tagged_or_other(value, path, depth, self._others)

    def _tagged_or_other(self, value: Any, path: str, depth: int, others: list[tuple[str, Any]]) -> Skeleton:
        try:
            if not _loses_its_class(value):
                return self._tagged(value, path, depth)
        except _NotPlain:  # the caller stores it
            pass
        others.append((path or "value", value))
        return {"$": "other", "index": len(others) - 1, "type": _class_path(value)}

    def _tagged(self, value: Any, path: str, depth: int) -> Skeleton:
        if _is_tensor(value):
            body = {"$": "tensor", **self._leaf(value, path)}
            order = _order(value)
            return {**body, "order": order} if order else body
        if type(value) in (np.ndarray, np.memmap):
            return {"$": "array", **self._leaf(value, path)}
        if isinstance(value, np.generic) and not isinstance(value, str | bytes):
            return {"$": "scalar", **self._leaf(np.asarray(value), path)}
        if isinstance(value, Mapping):
            kind = _mapping_kind(value) or "dict"
            items = [
                [self.pack(k, f"{path}.key{i}", depth + 1), self.pack(v, _join(path, k), depth + 1)]
                for i, (k, v) in enumerate(value.items())
            ]
            if isinstance(value, defaultdict) and kind == "defaultdict":
                factory: Any = value.default_factory
                return {"$": kind, "factory": factory and factory.__name__, "items": items}
            return {"$": kind, "items": items}
        for kind, parts in _parts(value):
            body = {"$": kind, "items": [self.pack(p, f"{path}.{i}", depth + 1) for i, p in enumerate(parts)]}
            return {**body, "maxlen": value.maxlen} if kind == "deque" else body
        return _plain(value, path)

    def _leaf(self, value: Any, path: str) -> dict[str, Any]:
        try:
            key = _identity(value)
            if key not in self._names:
                self._add(key, value, path or "value")
        except (TypeError, ValueError, RuntimeError) as error:
            problem = str(error).partition("\n")[0]
            raise _NotPlain(f"the state has {problem} at {path!r}, which cannot be saved") from error
        name = self._names[key]
        # The leaf of a sharded tensor has only the rows of this rank; the skeleton has the whole shape.
        return {"leaf": name, "dtype": self.leaves[name].dtype, "shape": list(value.shape)}

    def _add(self, key: Any, value: Any, name: str) -> None:
        while name in self.leaves or name == "__metadata__":  # a reserved name of safetensors
            name += "'"
        self.leaves[name], self._names[key] = self._leaf_of(value), name
        self._packed.append(value)


class _NotPlain(CheckpointError):
    """The value itself, and not one inside it, is of a kind that cannot be packed."""


def _class_path(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _loses_its_class(value: Any) -> bool:
    """Whether `unpack` would give a mapping or a tuple of another class, which may behave differently: a
    `defaultdict` with a function of the project, a named tuple."""
    if isinstance(value, Mapping):
        return _mapping_kind(value) is None
    return isinstance(value, tuple) and type(value) is not tuple


def _mapping_kind(value: Mapping[Any, Any]) -> str | None:
    """Returns the kind by which `unpack` gives a mapping of the same class; None if it would be another."""
    if type(value) is defaultdict:
        return "defaultdict" if value.default_factory in _FACTORIES.values() else None
    return type(value).__name__ if type(value) in (dict, OrderedDict, Counter) else None


def _join(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)


def _identity(value: Any) -> Any:
    """Returns a key that is equal for two tensors that are the same view of the same memory, and different
    for all other values."""
    own = local_part(value)[0] if _is_tensor(value) else None
    if own is None or own.numel() == 0 or own.layout != sys.modules["torch"].strided:
        return id(value)
    lazy = (own.is_conj(), own.is_neg())  # such a view shares the memory but has other values
    return (own.data_ptr(), str(own.device), own.dtype, tuple(own.shape), own.stride(), lazy)


def _parts(value: Any) -> list[tuple[str, list[Any]]]:
    if type(value) in (set, frozenset):
        return [(type(value).__name__, sorted(value, key=repr))]
    if isinstance(value, tuple):
        return [("tuple", list(value))]
    if isinstance(value, deque):
        return [("deque", list(value))]
    return []


def _numbers(values: list[Any]) -> np.ndarray[Any, Any] | None:
    """Returns the array of a list of numbers of one type; None for any other list."""
    kinds = set(map(type, values))
    if len(kinds) > 1:
        return None
    (kind,) = kinds
    try:
        if kind in (int, float):
            return np.array(values, dtype=np.int64 if kind is int else np.float64)
        is_number = issubclass(kind, np.number | np.bool_) and not issubclass(kind, np.timedelta64)
        return np.array(values) if is_number else None
    except OverflowError:  # an int of more than 64 bits
        return None


def _float(value: float) -> Skeleton:
    return value if math.isfinite(value) else {"$": "float", "value": repr(value)}


def _plain(value: Any, path: str) -> Skeleton:
    if isinstance(value, bytes | bytearray):
        return {"$": "bytes", "value": base64.b64encode(value).decode()}
    if isinstance(value, complex):
        return {"$": "complex", "value": [repr(value.real), repr(value.imag)]}
    if isinstance(value, PurePath):
        return {"$": "path", "value": str(value)}
    if type(value).__module__ == "torch" and type(value).__name__ in ("dtype", "device"):
        return {"$": f"torch.{type(value).__name__}", "value": str(value).removeprefix("torch.")}
    # Enums that are ints or strings (torch's SWALR and OneCycleLR have some) are saved as plain values.
    if isinstance(value, float):
        return _float(float(value))
    for base in (int, str):
        if isinstance(value, base):
            return base(value)
    raise _NotPlain(
        f"the state has a {_class_path(value)} at {path!r}, which is neither plain data nor a tensor",
        fix="give numbers, strings, lists, dicts, arrays and tensors from state_dict()",
    )


def pack(
    tree: Any,
    *,
    leaf_of: Callable[[Any], Leaf] = make_leaf,
    others: list[tuple[str, Any]] | None = None,
) -> tuple[Skeleton, dict[str, Leaf]]:
    """Splits a tree into a skeleton for JSON and named leaves.

    Args:
        tree: Nested plain values, arrays and tensors.
        leaf_of: Returns the leaf of a tensor or array. `make_leaf` does not copy what is contiguous and on
            the CPU: write those leaves before the values change.
        others: Gets each value that is neither plain data nor a strided tensor, with its path, in place of
            an error; so also mappings and tuples of classes of their own. The caller stores them.

    Raises:
        CheckpointError: A value in the tree is neither plain data nor a strided tensor.
    """
    packer = _Packer(leaf_of, others)
    try:
        return packer.pack(tree, ""), packer.leaves
    except _NotPlain as error:
        raise CheckpointError(error.message, fix=error.fix) from error
    except RecursionError as error:
        raise CheckpointError(
            "the state is nested too deeply to be saved at this depth of the call stack"
        ) from error


class _Unpacker:
    def __init__(
        self,
        leaves: Mapping[str, Leaf],
        to: Literal["torch", "numpy"],
        may_view: bool,
        others: Sequence[Any] | None,
    ) -> None:
        self._leaves, self._to, self._may_view, self._others = leaves, to, may_view, others
        self._made: dict[tuple[str, str], Any] = {}

    def unpack(self, skeleton: Skeleton, depth: int = 0) -> Any:
        if depth > _MAX_DEPTH:
            raise CheckpointError(f"the state is nested deeper than {_MAX_DEPTH}")
        if isinstance(skeleton, list):
            return [self.unpack(item, depth + 1) for item in skeleton]
        if not isinstance(skeleton, dict):
            return skeleton
        if "$" not in skeleton:
            return {key: self.unpack(item, depth + 1) for key, item in skeleton.items()}
        return self._untag(skeleton["$"], skeleton, depth)

    def _untag(self, kind: str, body: dict[str, Any], depth: int) -> Any:
        if kind in ("tensor", "array", "scalar"):
            return self._leaf(kind, body)
        if kind in ("numbers", "scalars"):
            array = self._leaf("array", body)
            return array.tolist() if kind == "numbers" else list(array)
        if kind in _MAPPINGS or kind == "defaultdict":
            pairs = [(self.unpack(k, depth + 1), self.unpack(v, depth + 1)) for k, v in body["items"]]
            if kind == "defaultdict":
                return defaultdict(_FACTORIES[body["factory"]], pairs)
            return _MAPPINGS[kind](pairs)
        if kind in _SEQUENCES:
            return _SEQUENCES[kind]([self.unpack(item, depth + 1) for item in body["items"]])
        if kind == "deque":
            return deque([self.unpack(item, depth + 1) for item in body["items"]], body["maxlen"])
        if kind == "other":
            return Unread(str(body["type"])) if self._others is None else self._others[body["index"]]
        return self._value(kind, body.get("value"))

    def _value(self, kind: str, value: Any) -> Any:
        if kind == "float":
            return float(value)
        if kind == "bytes":
            return base64.b64decode(value, validate=True)
        if kind == "complex":
            return complex(float(value[0]), float(value[1]))
        if kind == "path":
            return Path(value)
        if kind in ("torch.dtype", "torch.device") and self._to == "torch":
            torch = sys.modules["torch"]
            return torch.device(value) if kind == "torch.device" else byte_tensors.torch_dtype(value)
        if kind in ("torch.dtype", "torch.device"):
            return str(value)
        raise CheckpointError(f"the state has the unknown kind {kind!r}", fix="read it with a newer roost")

    def _leaf(self, kind: str, body: dict[str, Any]) -> Any:
        key = (kind, body["leaf"])
        if key not in self._made:
            leaf = self._leaves.get(body["leaf"])
            if leaf is None:
                raise CheckpointError(f"the leaf {body['leaf']!r} is missing")
            shape = tuple(int(n) for n in body["shape"])
            if kind == "tensor" and self._to == "torch":
                self._made[key] = byte_tensors.tensor_from_bytes(
                    leaf.data, str(body["dtype"]), shape, order=body.get("order"), may_view=self._may_view
                )
            else:
                array = byte_tensors.array_from_bytes(leaf.data, str(body["dtype"]), shape)
                self._made[key] = array[()] if kind == "scalar" else array
        return self._made[key]


def unpack(
    skeleton: Skeleton,
    leaves: Mapping[str, Leaf],
    *,
    to: Literal["torch", "numpy"] = "torch",
    may_view: bool = False,
    others: Sequence[Any] | None = None,
) -> Any:
    """Returns the tree that `pack` split. With ``to="numpy"`` tensors become arrays and torch is not
    imported.

    Args:
        skeleton: The skeleton from `pack`.
        leaves: The leaves from `pack`.
        to: The type of tensors in the result. Arrays are views of the leaves.
        may_view: Whether the caller gives the leaves away, so that large tensors may be views of them, too.
        others: The values that `pack` handed to its caller; None: an `Unread` in the place of each.

    Raises:
        CheckpointError: The skeleton and the leaves do not belong together.
    """
    if to == "torch":
        import torch  # noqa: F401  - the lookups in sys.modules need it
    try:
        return _Unpacker(leaves, to, may_view, others).unpack(skeleton)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError) as error:
        raise CheckpointError(f"the state cannot be read: {type(error).__name__}: {error}") from error


def move_to_device(value: Any, device: str) -> Any:
    """Returns a tree from `unpack` with its tensors on ``device``; aliases (tied weights) stay one tensor.

    Raises:
        RuntimeError: An error of torch, for example because the device is full or does not exist.
    """
    return _move(value, device, {})


def _move(value: Any, device: str, made: dict[int, Any]) -> Any:
    if _is_tensor(value):
        if id(value) not in made:
            made[id(value)] = value.to(device)
        return made[id(value)]
    if isinstance(value, dict):
        pairs = [(_move(k, device, made), _move(v, device, made)) for k, v in value.items()]
        if isinstance(value, defaultdict):
            return defaultdict(value.default_factory, pairs)
        return _MAPPINGS[type(value).__name__](pairs)
    if isinstance(value, list | tuple | set | frozenset | deque):
        items = [_move(item, device, made) for item in value]
        if isinstance(value, deque):
            return deque(items, value.maxlen)
        return items if isinstance(value, list) else _SEQUENCES[type(value).__name__](items)
    return value
