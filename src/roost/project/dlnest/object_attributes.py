"""The plain attributes of the project's objects that change in training, as part of a checkpoint.

``getSaveDict`` says what a LifeCycle, Dataset or Runner needs to continue after an epoch. Within an epoch there
is more: a running mean, a counter, a meter, a generator of the project's own. An uninterrupted run has them, so
a resumed one gets them, too.
"""

from __future__ import annotations

import copy
import json
import random
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from roost.base import state_tree
from roost.base.errors import CheckpointError

_MAX_DEPTH = 4
_MAX_VALUES, _MAX_BYTES = 100_000, 16 << 20
"""A larger attribute is a table that was read, not state of the training: digesting it would slow down each
save."""
_MODULE_ATTRIBUTES = frozenset(vars(nn.Module()))


class _Attribute(NamedTuple):
    path: str
    value: Any


class ObjectAttributes:
    """Finds the attributes that have changed since `begin`, and sets them in the objects of another process.

    An attribute counts if its value is plain data, an array, a tensor on its own (no parameter or buffer of a
    module, no part of a graph), or a random generator. Objects of classes of the project are searched for
    attributes as well; those of other libraries are not: what belongs to them is theirs.

    Args:
        roots: The objects by name.
        package: The folder with the project's code.
        device: The device of tensors that were not on the CPU.
        excluded: Objects that are saved elsewhere, or never change.
        note_inexact: Called with what cannot be restored.
    """

    def __init__(
        self,
        roots: Mapping[str, Any],
        *,
        package: Path,
        device: str,
        excluded: Callable[[], Iterable[Any]],
        note_inexact: Callable[[str], None],
    ) -> None:
        self._roots, self._package, self._device = roots, str(package), device
        self._excluded, self._note_inexact = excluded, note_inexact
        self._before: dict[str, int | None] = {}
        self._held: set[str] = set()
        """The attributes that were loaded: they differ from those of a new run."""

    def begin(self) -> None:
        """Remembers the present values: those that a session of another process has as well."""
        self._before = {one.path: _digest(one.value) for one in self._attributes()}

    def state_dict(self) -> dict[str, Any]:
        """Returns the changed attributes by path."""
        found: dict[str, Any] = {}
        for path, value in self._attributes():
            digest = _digest(value)
            if digest is None or (path not in self._held and self._before.get(path) == digest):
                continue
            is_generator = isinstance(value, _GENERATORS)
            found[path] = {"generator" if is_generator else "value": _generator_state(value) if is_generator else value}
            if isinstance(value, Tensor) and value.device.type != "cpu":
                found[path]["on_device"] = True
        return found

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Sets the attributes in the objects that exist."""
        self._held = set(state)
        for path, entry in state.items():
            *parents, name = path.split(".")
            owner: Any = None
            for part in parents:
                owner = self._roots.get(part) if owner is None else _child(owner, part)
                if owner is None:
                    break
            if owner is None:
                self._note_inexact(f"{path} was made in training, and no checkpoint holds the object that has it")
            elif "generator" in entry:
                _set_generator_state(vars(owner).get(name), entry["generator"])
            else:
                _set(owner, name, self._on_device(copy.deepcopy(entry["value"]), entry))

    def _on_device(self, value: Any, entry: Mapping[str, Any]) -> Any:
        return value.to(self._device) if entry.get("on_device") else value

    def _attributes(self) -> Iterator[_Attribute]:
        seen = {id(one) for one in self._roots.values()}
        skipped = _containers(self._excluded())
        storages = {_storage(one) for root in self._roots.values() for one in _module_tensors(root)}
        for name, root in self._roots.items():
            yield from self._attributes_of(name, root, seen, skipped, storages, 0)

    def _attributes_of(
        self, path: str, owner: Any, seen: set[int], skipped: set[int], storages: set[int], depth: int
    ) -> Iterator[_Attribute]:
        for name, value in list(vars(owner).items()):
            if not isinstance(name, str) or "." in name:
                continue
            if isinstance(owner, nn.Module) and name in _MODULE_ATTRIBUTES and name != "_modules":
                continue
            if isinstance(value, _GENERATORS) or _is_plain(value, skipped, storages):
                yield _Attribute(f"{path}.{name}", value)
                continue
            children = value.items() if name == "_modules" and isinstance(value, dict) else [(name, value)]
            for own, child in children:
                if id(child) not in seen and depth < _MAX_DEPTH and self._is_of_project(child):
                    seen.add(id(child))
                    yield from self._attributes_of(f"{path}.{own}", child, seen, skipped, storages, depth + 1)

    def _is_of_project(self, value: Any) -> bool:
        """Whether a method of the object's class is in a file of the package."""
        if not hasattr(value, "__dict__") or isinstance(value, type):
            return False
        codes = (getattr(one, "__code__", None) for one in vars(type(value)).values())
        return any(code is not None and code.co_filename.startswith(self._package) for code in codes)


_GENERATORS = (np.random.Generator, np.random.RandomState, random.Random, torch.Generator)


def _generator_state(generator: Any) -> Any:
    if isinstance(generator, np.random.Generator):
        return generator.bit_generator.state
    if isinstance(generator, np.random.RandomState):
        return generator.get_state(legacy=False)
    return generator.getstate() if isinstance(generator, random.Random) else generator.get_state()


def _set_generator_state(generator: Any, state: Any) -> None:
    if isinstance(generator, np.random.Generator):
        generator.bit_generator.state = state
    elif isinstance(generator, np.random.RandomState):
        generator.set_state(state)
    elif isinstance(generator, random.Random):
        generator.setstate(state)
    elif isinstance(generator, torch.Generator):
        generator.set_state(state)


def _child(owner: Any, name: str) -> Any:
    """Returns an object's attribute or submodule; None if it has none of this name."""
    own = vars(owner)
    return own[name] if name in own else own.get("_modules", {}).get(name)


def _set(owner: Any, name: str, value: Any) -> None:
    """Sets an attribute; a container keeps its identity, as other objects may refer to it."""
    before = vars(owner).get(name)
    if type(before) is type(value) and isinstance(before, list | deque):
        before.clear()
        before.extend(value)
    elif type(before) is type(value) and isinstance(before, dict | set):
        before.clear()
        before.update(value)
    else:
        vars(owner)[name] = value


def _is_plain(value: Any, skipped: set[int], storages: set[int]) -> bool:
    """Whether a value belongs to its object alone, and is small plain data."""
    count = 0
    stack = [value]
    while stack:
        one = stack.pop()
        count += 1
        if count > _MAX_VALUES or id(one) in skipped:
            return False
        if isinstance(one, Tensor):
            if one.grad_fn is not None or one.numel() * one.element_size() > _MAX_BYTES:
                return False
            if _storage(one) in storages or (one is not value and one.device.type != "cpu"):
                return False
        elif isinstance(one, np.ndarray):
            if one.nbytes > _MAX_BYTES or one.dtype.kind not in "biufcmMSU":
                return False
        elif isinstance(one, Mapping):
            stack += [*one.keys(), *one.values()]
        elif isinstance(one, list | tuple | set | frozenset | deque):
            stack += one
        elif not isinstance(one, bool | int | float | complex | str | bytes | np.generic | None):
            return False
    return True


def _digest(value: Any) -> int | None:
    try:
        skeleton, leaves = state_tree.pack(_generator_state(value) if isinstance(value, _GENERATORS) else value)
    except CheckpointError:
        return None
    digest = zlib.crc32(json.dumps(skeleton).encode())
    for name in sorted(leaves):
        digest = zlib.crc32(leaves[name].data, digest)
    return digest


def _containers(values: Iterable[Any]) -> set[int]:
    """Returns the ids of values, and of the containers in them."""
    found: set[int] = set()
    stack = [one for one in values if one is not None]
    while stack:
        one = stack.pop()
        if id(one) in found:
            continue
        found.add(id(one))
        items = one.values() if isinstance(one, Mapping) else one if isinstance(one, list | tuple) else ()
        stack += [item for item in items if isinstance(item, Mapping | list | tuple)]
    return found


def _module_tensors(root: Any) -> Iterator[Tensor]:
    for value in list(vars(root).values()):
        module = value if isinstance(value, nn.Module) else getattr(value, "module", None)
        if isinstance(module, nn.Module):
            yield from module.parameters()
            yield from module.buffers()


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
