"""The plain attributes of the project's objects that change in training, as part of a checkpoint.

``getSaveDict`` says what a LifeCycle, Dataset or Runner needs to continue after an epoch. Within an epoch
there is more: a running mean, a counter, a meter, a generator of the project's own. An uninterrupted run has
them, so a resumed one gets them, too.
"""

from __future__ import annotations

import copy
import json
import random
import re
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

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


class ObjectAttributes:
    """Finds the attributes that have changed since `begin`, and sets them in the objects of another process.

    An attribute counts if its value is plain data, an array, a tensor (detached, and no parameter or buffer),
    a random generator, or a reference to the log. Objects of classes of the project are searched for
    attributes as well; those of other libraries are not: what belongs to them is theirs.

    Args:
        roots: The objects by name.
        package: The folder with the project's code.
        device: The device of tensors that were not on the CPU.
        log: Returns the log, which is saved elsewhere.
        constants: Objects that are the same in each session.
        note_inexact: Called with what cannot be restored.
    """

    def __init__(
        self,
        roots: Mapping[str, Any],
        *,
        package: Path,
        device: str,
        log: Callable[[], dict[Any, Any]],
        constants: Iterable[Any],
        note_inexact: Callable[[str], None],
    ) -> None:
        self._roots, self._package, self._device = roots, str(package), device
        self._log, self._constants, self._note_inexact = log, _containers(constants), note_inexact
        self._before: dict[str, int | None] = {}
        self._held: set[str] = set()
        """The attributes that were loaded: they differ from those of a new run."""

    def begin(self) -> None:
        """Remembers the present values: those that a session of another process has as well."""
        self._before = {path: _digest(entry) for path, entry in self._entries()}

    def state_dict(self) -> dict[str, Any]:
        """Returns the changed attributes by path."""
        return {
            path: _replace(entry, self._package, _PACKAGE)
            for path, entry in self._entries()
            # A session that continues does not call initLog, which may have kept a reference to the log.
            if "log" in entry or path in self._held or self._before.get(path) != _digest(entry)
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Sets the attributes in the objects that exist."""
        self._held = set(state)
        for path, entry in state.items():
            root, *parents, name = path.split(".")
            owner = self._roots.get(root)
            for part in parents:
                owner = _child(owner, part) if owner is not None else None
            if owner is None:
                self._note_inexact(
                    f"{path} was made in training, and no checkpoint holds the object that has it"
                )
            elif "generator" in entry:
                _set_generator_state(vars(owner).get(name), entry["generator"])
            elif "log" in entry:
                vars(owner)[name] = _at(self._log(), entry["log"])
            else:
                value = _replace(copy.deepcopy(entry["value"]), _PACKAGE, self._package)
                _set(owner, name, value.to(self._device) if entry.get("on_device") else value)

    def _entries(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yields each attribute with what a checkpoint holds of it."""
        logs = _log_paths(self._log())
        seen = {id(one) for one in self._roots.values()}
        skipped = {*self._constants, *logs}
        storages = {_storage(one) for root in self._roots.values() for one in _module_tensors(root)}
        for name, root in self._roots.items():
            yield from self._entries_of(name, root, seen, skipped, logs, storages, 0)

    def _entries_of(
        self,
        path: str,
        owner: Any,
        seen: set[int],
        skipped: set[int],
        logs: Mapping[int, list[Any]],
        storages: set[int],
        depth: int,
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        for name, value in list(vars(owner).items()):
            if not isinstance(name, str) or "." in name:
                continue
            if isinstance(owner, nn.Module) and name in _MODULE_ATTRIBUTES and name != "_modules":
                continue
            if id(value) in logs:
                yield f"{path}.{name}", {"log": logs[id(value)]}
            elif isinstance(value, _GENERATORS):
                yield f"{path}.{name}", {"generator": _generator_state(value)}
            elif isinstance(value, Tensor):
                if _is_own_tensor(value, storages):
                    on_device = {"on_device": True} if value.device.type != "cpu" else {}
                    yield f"{path}.{name}", {"value": value.detach(), **on_device}
            elif _is_plain(value, skipped, storages):
                yield f"{path}.{name}", {"value": value}
            else:
                children = (
                    value.items() if name == "_modules" and isinstance(value, dict) else [(name, value)]
                )
                for own, child in children:
                    if id(child) not in seen and depth < _MAX_DEPTH and self._is_of_project(child):
                        seen.add(id(child))
                        yield from self._entries_of(
                            f"{path}.{own}", child, seen, skipped, logs, storages, depth + 1
                        )

    def _is_of_project(self, value: Any) -> bool:
        """Whether a method of the object's class is in a file of the package."""
        if not hasattr(value, "__dict__") or isinstance(value, type):
            return False
        codes = (getattr(one, "__code__", None) for one in vars(type(value)).values())
        return any(code is not None and code.co_filename.startswith(self._package) for code in codes)


_PACKAGE = "\0package\0"
"""Replaces the package's folder in texts of a checkpoint: packages are moved, and forked."""


def _replace(value: Any, old: str, new: str) -> Any:
    """Returns plain data with a folder replaced in all its texts."""
    if type(value) is str:
        return re.sub(f"{re.escape(old)}(?=/|$)", lambda _: new, value) if old in value else value
    if type(value) is dict:
        return {name: _replace(one, old, new) for name, one in value.items()}
    if type(value) in (list, tuple, set):
        return type(value)(_replace(one, old, new) for one in value)
    return value


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
            if one.grad_fn is not None or one.device.type != "cpu" or not _is_own_tensor(one, storages):
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


def _is_own_tensor(value: Tensor, storages: set[int]) -> bool:
    return value.numel() * value.element_size() <= _MAX_BYTES and _storage(value) not in storages


def _digest(entry: Any) -> int | None:
    """Returns a number that changes with the entry; None for one that no checkpoint can hold."""
    try:
        skeleton, leaves = state_tree.pack(entry)
    except CheckpointError:
        return None
    digest = zlib.crc32(json.dumps(skeleton).encode())
    for name in sorted(leaves):
        digest = zlib.crc32(leaves[name].data, digest)
    return digest


def _log_paths(log: Mapping[Any, Any]) -> dict[int, list[Any]]:
    """Returns the path of the log, and of each dictionary and list in it, by id."""
    found: dict[int, list[Any]] = {id(log): []}
    stack: list[tuple[Any, list[Any]]] = [(log, [])]
    while stack:
        owner, path = stack.pop()
        for name, value in owner.items():
            if not isinstance(value, Mapping | list) or id(value) in found:
                continue  # a log may contain itself
            found[id(value)] = [*path, name]
            if isinstance(value, Mapping):
                stack.append((value, [*path, name]))
    return found


def _at(log: Any, path: list[Any]) -> Any:
    for name in path:
        log = log[name]
    return log


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
