"""Detects state that no checkpoint holds: plain attributes of a runner that change during training."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor, nn

from roost.base import state_tree
from roost.train.distributed import sharded_tensors

_MODULE_ATTRIBUTES = frozenset(vars(nn.Module()))


class PlainAttributes:
    """Remembers the plain attributes of a module and its submodules, and names those that change.

    After a change, a resumed run would compute with other values. A submodule with `get_extra_state` is
    assumed to save what it needs; attributes that are not plain data (objects, functions) are ignored.
    """

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._before: dict[str, int | None] | None = _fingerprints(module)

    def changed(self) -> list[str]:
        """Returns the dotted names of attributes that changed since construction; only the first call
        checks."""
        if self._before is None:
            return []
        before, self._before = self._before, None
        now = _fingerprints(self._module)
        pairs = {name: (before.get(name, 0), now.get(name, 0)) for name in {**before, **now}}
        return [name for name, pair in pairs.items() if pair[0] != pair[1] and None not in pair]


def _fingerprints(module: nn.Module) -> dict[str, int | None]:
    """Returns a number for each attribute, never 0; None for an attribute that is ignored."""
    state = {_storage(tensor) for tensor in (*module.parameters(), *module.buffers())} - {0}
    found: dict[str, int | None] = {}
    for prefix, part in module.named_modules():
        if sharded_tensors.unsharded_class(part).__module__.startswith("torch.") or _saves_extra(part):
            continue
        for name, value in vars(part).items():
            if name not in _MODULE_ATTRIBUTES:
                found[f"{prefix}.{name}" if prefix else name] = _fingerprint(value, state)
    return found


def _saves_extra(part: nn.Module) -> bool:
    return type(part).get_extra_state is not nn.Module.get_extra_state


def _fingerprint(value: Any, state: set[int]) -> int | None:
    try:
        if any(_storage(tensor) in state for tensor in _tensors(value)):
            return None  # a reference to parameters or buffers, which are saved
        skeleton, leaves = state_tree.pack(value)
        total = zlib.crc32(json.dumps(skeleton).encode())
        for name in sorted(leaves):
            total = zlib.crc32(leaves[name].data, total)
    except Exception:  # noqa: BLE001  - an attribute may be anything; one that cannot be packed is ignored
        return None
    return total + 1


def _storage(tensor: Tensor) -> int:
    return sharded_tensors.local_shard(tensor).untyped_storage().data_ptr()


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)
