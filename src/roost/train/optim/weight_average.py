"""Averages of a module's weights, kept in addition to the trained weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from operator import is_
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn, get_swa_multi_avg_fn

from roost.base.errors import CheckpointError, NotFound
from roost.base.text.suggestions import did_you_mean
from roost.train.distributed import sharded_tensors

AverageMethod = Literal["ema", "swa"]
HOOK_PREFIX = "average/"
"""Prefix of the hook that keeps an average, before the average's name; in checkpoints too."""


class _TensorSlot(NamedTuple):
    """The dictionary and key under which a module holds a parameter or a buffer."""

    container: dict[str, Any]
    key: str
    tensor: Tensor


class Average:
    """The average of a module's parameters and persistent buffers over the moments of its updates.

    ```
    average = Average(method="ema", decay=0.999)
    ...
    average.update(module)            # after an optimizer step
    with average.swapped(module):     # the module holds the averaged weights
        evaluate(module)
    ```

    "ema" keeps ``decay`` of itself at each update and begins with the weights of the first one (Polyak and
    Juditsky, SIAM J. Control Optim. 1992); "swa" is the mean over all of them (Izmailov et al., UAI 2018).
    Both are computed by torch.optim.swa_utils, for buffers as for weights. Integer and boolean tensors
    (counters, masks) are copied. Weights of less than 32 bits are averaged in float32: one update adds too
    little for 16 bits. Nothing here waits for a device.

    Args:
        method: "ema" or "swa".
        decay: The decay of "ema".
    """

    def __init__(self, *, method: AverageMethod = "ema", decay: float = 0.999) -> None:
        self.method, self.decay = method, decay
        self.count = 0
        """Updates so far; before the first one the average is the module's own weights."""
        self._average_into: Callable[[Any, Any, Any], None] = (
            get_ema_multi_avg_fn(decay)  # type: ignore[no-untyped-call]
            if method == "ema"
            else get_swa_multi_avg_fn()  # type: ignore[no-untyped-call]
        )
        self._weights: dict[str, Tensor] = {}
        """By the names of the module's state_dict; two names of one tensor share one average."""
        self._slots: list[_TensorSlot] = []
        self._pairs: list[tuple[Tensor, Tensor]] = []
        """Each tensor of the module once, and its average; without sharded tensors."""
        self._shards: list[tuple[Tensor, Tensor]] = []
        """This rank's shard of each sharded tensor, and its average."""
        self._averaged: list[tuple[list[Tensor], list[Tensor]]] = []
        """Averages and tensors of one device and dtype, which one kernel updates together."""
        self._copied: list[tuple[Tensor, Tensor]] = []
        self._containers: list[dict[str, Any]] = []
        """The dictionaries of parameters, buffers and modules of the module and its submodules."""
        self._members: list[Any] = []
        """The contents of these dictionaries when the slots were found."""
        self._has_checked_fit = True

    @torch.no_grad()
    def update(self, module: nn.Module) -> None:
        """Adds the current weights of the module to the average. No synchronisation.

        Raises:
            CheckpointError: The loaded average belongs to another module.
        """
        self._match(module)
        if self.count:
            for averages, tensors in self._averaged:
                dtype = averages[0].dtype
                wide = [tensor if tensor.dtype is dtype else tensor.to(dtype) for tensor in tensors]
                self._average_into(averages, wide, self.count)
        if pairs := self._copied if self.count else [*self._pairs, *self._shards]:
            torch._foreach_copy_([average for _, average in pairs], [tensor for tensor, _ in pairs])
        self.count += 1

    @contextmanager
    def swapped(self, module: nn.Module) -> Iterator[None]:
        """Gives the module the averaged weights inside the context; restores its own afterwards, even after
        an error, bit for bit and in the same memory.

        Parameters and buffers remain the same objects and only point to other memory, so an optimizer or a
        compiled step is not affected. Values written into a buffer inside the context are lost.

        Raises:
            CheckpointError: The loaded average belongs to another module.
        """
        if not self.count:
            yield
            return
        self._match(module)
        places = list(self._slots)
        raw = [(tensor, tensor.data) for tensor, _ in self._pairs]
        with torch.no_grad():
            rows = [(shard, shard.clone()) for shard, _ in self._shards]
            for shard, average in self._shards:  # in place: sharded tensors are gathered from this memory
                shard.copy_(average)
        try:
            for tensor, average in self._pairs:
                value = average.to(tensor.dtype)
                # An evaluation that writes into a buffer must not write into the average.
                tensor.data = value if isinstance(tensor, nn.Parameter) else value.clone()
            yield
        finally:
            for place in places:
                place.container[place.key] = place.tensor
            for tensor, data in raw:
                tensor.data = data
            with torch.no_grad():
                for shard, own in rows:
                    shard.copy_(own)

    def fit_to(self, module: nn.Module) -> None:
        """Moves a loaded average to the devices of the module's tensors, and checks that it fits.

        Raises:
            CheckpointError: The average belongs to another module.
        """
        if self.count:
            self._match(module)

    def state_dict(self) -> dict[str, Any]:
        """Returns method, number of updates, and the averaged weights under the names of the module's
        state_dict; no weights before the first update."""
        return {"method": self.method, "count": self.count, "weights": dict(self._weights)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a copy of the result of `state_dict`."""
        self.count = state["count"]
        self._weights = {name: value.clone() for name, value in state["weights"].items()}
        self._containers, self._has_checked_fit = [], False

    def clear(self) -> None:
        """Resets the average: the next update is the first."""
        self.load_state_dict({"count": 0, "weights": {}})

    # ---- the tensors of the module ----------------------------------------------------------------------

    @torch.no_grad()
    def _match(self, module: nn.Module) -> None:
        """Finds the module's tensors, and creates missing averages. If no tensor was added, replaced or
        removed since the last call, it only checks that: 0.3 ms for 2,000 modules."""
        members = _members(self._containers)
        is_known = bool(self._containers) and self._containers[0] is module._parameters
        if is_known and len(members) == len(self._members) and all(map(is_, members, self._members)):
            return
        places = list(_tensor_slots(module))
        own = {id(place.tensor) for place in places}
        named = {name: one for name, one in module.state_dict(keep_vars=True).items() if id(one) in own}
        if self.count and not self._has_checked_fit:
            _check_fits(named, self._weights)
        self._has_checked_fit = True
        averages: dict[int, Tensor] = {}
        for name, tensor in named.items():
            if id(tensor) not in averages:
                averages[id(tensor)] = _average_for(self._weights.get(name), tensor)
        self._weights = {name: averages[id(tensor)] for name, tensor in named.items()}
        tensors = {id(tensor): tensor for tensor in named.values()}
        pairs = [(tensor, averages[key]) for key, tensor in tensors.items()]
        self._pairs = [pair for pair in pairs if not sharded_tensors.is_sharded(pair[0])]
        self._shards = [
            (sharded_tensors.local_shard(tensor), sharded_tensors.local_shard(average))
            for tensor, average in pairs
            if sharded_tensors.is_sharded(tensor)
        ]
        self._group_tensors()
        self._slots, self._containers = places, _containers(module)
        self._members = _members(self._containers)

    def _group_tensors(self) -> None:
        alike: dict[Any, tuple[list[Tensor], list[Tensor]]] = {}
        self._copied = []
        for tensor, average in [*self._pairs, *self._shards]:
            if _is_averaged(tensor):
                averages, tensors = alike.setdefault((average.device, average.dtype), ([], []))
                averages.append(average)
                tensors.append(tensor)
            else:
                self._copied.append((tensor, average))
        self._averaged = list(alike.values())


def stored_weights(
    hooks: Mapping[str, Any], name: str, *, where: object, setting: str | None = None
) -> dict[str, Any]:
    """Returns the weights of an average in a checkpoint; empty before its first update.

    Args:
        hooks: The states of the hooks, by name.
        name: The name of the average.
        where: The checkpoint, for messages.
        setting: The setting that names the average, for messages.

    Raises:
        NotFound: The run keeps no such average.
    """
    if (state := hooks.get(f"{HOOK_PREFIX}{name}")) is not None:
        return dict(state["weights"])
    known = [hook.removeprefix(HOOK_PREFIX) for hook in hooks if hook.startswith(HOOK_PREFIX)]
    has = f"there are: {', '.join(known)}" if known else "the run keeps none (settings: averages)"
    raise NotFound(
        "the checkpoint holds no such average",
        setting=setting,
        received=name,
        where=where,
        fix=f"{did_you_mean(name, known)}{has}",
    )


def _tensor_slots(module: nn.Module) -> Iterator[_TensorSlot]:
    """Yields every parameter and persistent buffer. Non-persistent buffers are caches that can be computed
    again."""
    for part in module.modules():
        hidden = part._non_persistent_buffers_set
        for home in (part._parameters, part._buffers):
            for key, tensor in home.items():
                if tensor is not None and (home is part._parameters or key not in hidden):
                    yield _TensorSlot(home, key, tensor)


def _containers(module: nn.Module) -> list[dict[str, Any]]:
    """Returns the dictionaries of all submodules; those of the module itself come first."""
    return [home for part in module.modules() for home in (part._parameters, part._buffers, part._modules)]


def _members(homes: Sequence[Mapping[str, Any]]) -> list[Any]:
    return list(chain.from_iterable(map(dict.values, homes)))  # type: ignore[arg-type]


def _is_averaged(tensor: Tensor) -> bool:
    is_number = tensor.is_floating_point() or tensor.is_complex()
    return is_number and tensor.layout is torch.strided


def _average_for(average: Tensor | None, tensor: Tensor) -> Tensor:
    """Returns the tensor for the average of ``tensor``: ``average`` if device, dtype and layout fit, else a
    copy that fits. Without an average of the same shape it starts with the values of ``tensor``."""
    is_short = _is_averaged(tensor) and tensor.dtype.itemsize < torch.float32.itemsize
    made = torch.empty_like(tensor, dtype=torch.float32 if is_short else tensor.dtype, requires_grad=False)
    if average is None or average.shape != tensor.shape:
        return made.copy_(tensor)
    average = sharded_tensors.shard_like(average, tensor)
    same = (average.device, average.dtype, average.layout) == (made.device, made.dtype, made.layout)
    # The memory order decides which kernels an evaluation uses, so it must survive a restart too.
    if same and (made.layout is not torch.strided or average.stride() == made.stride()):
        return average
    return made.copy_(average)


def _check_fits(named: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> None:
    strange = [name for name in {**named, **weights} if (name in named) != (name in weights)]
    strange += [name for name, one in named.items() if name in weights and one.shape != weights[name].shape]
    if strange:
        more = f" and {len(strange) - 3} more" if len(strange) > 3 else ""
        raise CheckpointError(
            f"the averaged weights do not fit the model: {', '.join(strange[:3])}{more}",
            fix="continue the package with its own code and settings",
        )
