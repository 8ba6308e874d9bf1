"""The hook that reports attributes which training changes and no checkpoint holds."""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from roost.base import state_tree
from roost.train.distributed import sharded_tensors
from roost.train.hook import Hook, Phase
from roost.train.model.nested_tensors import nested_tensors
from roost.train.optim.optimizer import Optim

if TYPE_CHECKING:
    from roost.train.trainer import Trainer


class Unsaved(Hook):
    """At each save, notes the run as inexact if something changed since the start of the session that a
    resume would not restore: plain attributes of the runner, and the parameters of its optimizers.

    A tensor with a gradient history, such as what a generator made for the discriminator of the same step, is
    no state: the backward pass of its step uses the history up, so each step computes it again. What a step
    gives to the next one has to be detached.
    """

    phase = Phase.REPORT  # starts last: attributes set by the start of other hooks are no changes

    def __init__(self) -> None:
        self._plain: PlainAttributes | None = None
        self._moved: dict[str, list[list[int]]] = {}
        """By optimizer, the ids of the parameters in its groups."""
        self._own: set[int] = set()

    def on_start(self, trainer: Trainer) -> None:
        self._plain = PlainAttributes(trainer.runner)
        self._moved = {name: _parameter_ids(optim) for name, optim in trainer.stepper.optimizers.items()}
        self._own = {id(parameter) for parameter in trainer.runner.parameters()}

    def before_save(self, trainer: Trainer) -> None:
        for name in self._plain.changed() if self._plain is not None else []:
            trainer.note_inexact(
                f"self.{name} of the Runner changed in training, and no checkpoint holds it; "
                "make it a buffer, or return it from get_extra_state()"
            )
        left = self._own - {id(parameter) for parameter in trainer.runner.parameters()}
        for name, before in self._moved.items():
            now = _parameter_ids(trainer.stepper.optimizers[name])
            if now != before:
                trainer.note_inexact(
                    f"the parameters of optimizer {name} changed in training, so no later session can load "
                    "its state; give it all parameters at the start, and freeze those that are used later"
                )
            elif not left.isdisjoint(one for group in now for one in group):
                trainer.note_inexact(
                    f"optimizer {name} still updates parameters that the Runner has replaced; change them in "
                    "place"
                )


def _parameter_ids(optim: Optim) -> list[list[int]]:
    return [[id(parameter) for parameter in group["params"]] for group in optim.optimizer.param_groups]


_MODULE_ATTRIBUTES = frozenset(vars(nn.Module()))


class PlainAttributes:
    """Remembers the plain attributes of a module and its submodules, and names those that change.

    After a change, a resumed run would compute with other values. A submodule with `get_extra_state` is
    assumed to save what it needs, as is one for which ``saves_attributes_of`` of the module is true;
    attributes that are not plain data (objects, functions) are ignored.
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
    is_saved = getattr(module, "saves_attributes_of", _saves_extra)
    for prefix, part in module.named_modules():
        is_torchs = sharded_tensors.unsharded_class(part).__module__.startswith("torch.")
        if is_torchs or _saves_extra(part) or is_saved(part):
            continue
        for name, value in vars(part).items():
            if name not in _MODULE_ATTRIBUTES:
                found[f"{prefix}.{name}" if prefix else name] = _fingerprint(value, state)
    return found


def _saves_extra(part: nn.Module) -> bool:
    return type(part).get_extra_state is not nn.Module.get_extra_state


def _fingerprint(value: Any, state: set[int]) -> int | None:
    try:
        if any(tensor.grad_fn is not None or _storage(tensor) in state for tensor in nested_tensors(value)):
            return None  # computed in this step; or a reference to parameters or buffers, which are saved
        skeleton, leaves = state_tree.pack(value)
        total = zlib.crc32(json.dumps(skeleton).encode())
        for name in sorted(leaves):
            total = zlib.crc32(leaves[name].data, total)
    except Exception:  # noqa: BLE001  - an attribute may be anything; one that cannot be packed is ignored
        return None
    return total + 1


def _storage(tensor: Tensor) -> int:
    return sharded_tensors.local_shard(tensor).untyped_storage().data_ptr()
