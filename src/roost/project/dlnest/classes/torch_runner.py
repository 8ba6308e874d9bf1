"""The base class of a runner with torch modules."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from roost.base.errors import CheckpointError
from roost.project.dlnest.classes.project_object import ProcessPlace, ProjectObject
from roost.project.dlnest.classes.registered_modules import RegisteredModules
from roost.project.dlnest.classes.runner_base import RunnerBase

_KINDS: dict[str, type] = {"optimizer": Optimizer, "scheduler": LRScheduler, "scaler": torch.amp.GradScaler}
"""What else is saved by attribute: the key in a checkpoint, and the class."""
_REGISTERED = "_registered_modules"
_OWN = {*ProjectObject.__annotations__, _REGISTERED}
"""Attributes of roost."""
_MOST_ENTRIES = 1000
"""A larger list or dict is data, which takes too long to search at each save."""


class RunnerBaseTorch(RunnerBase):
    """A runner whose modules, optimizers, schedulers and gradient scalers are saved.

    A module that is assigned to an attribute is moved to the run's device; so is one in a list or dict, at
    the end of `init`. It remains the project's own module, with several ranks too: each backward pass
    averages the gradients, whichever part of a module was called.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, nn.Module):
            held = [one for key, one in vars(self).items() if key != name]
            former = vars(self).get(name)
            is_replaced = isinstance(former, nn.Module) and not any(one is former for one in held)
            value = self._modules().assign(value, former if is_replaced else None)
        super().__setattr__(name, value)

    def register(self, module: nn.Module, syncBN: bool = False) -> nn.Module:
        """Registers a module and returns it on the run's device.

        Args:
            module: The module.
            syncBN: Whether its batch statistics are those of all ranks.
        """
        return self._modules().register(module, sync_batch_norm=syncBN)

    def getSaveDict(self) -> dict[Any, Any]:
        """Returns the states of modules by number; of optimizers, schedulers and scalers by attribute."""
        named = {kind: {name: one.state_dict() for name, one in self._named(kind).items()} for kind in _KINDS}
        if not named["scaler"]:  # DLNest's programs have no such key
            del named["scaler"]
        return {**self._modules().state_dict(), **named}

    def loadSaveDict(self, saveDict: dict[Any, Any]) -> None:
        """Restores what `getSaveDict` returned, or a checkpoint of DLNest's own programs; prints which
        modules, optimizers and schedulers it has no state of.

        Raises:
            CheckpointError: It has other modules, or an optimizer or scheduler that the runner has not.
        """
        self._modules().load_state_dict(saveDict)
        is_saved = any(isinstance(key, int) for key in saveDict)
        begins = [] if is_saved else list(self._module_names().values())
        for kind in _KINDS:
            states, named = dict(saveDict.get(kind, {})), self._named(kind)
            if not all(isinstance(one, Mapping) for one in states.values()):
                continue  # the state of one of them, which the project saves and loads itself
            for name, one in named.items():
                if name in states:
                    one.load_state_dict(states.pop(name))
                else:
                    begins.append(name)
            if states:
                raise CheckpointError(
                    f"the checkpoint has a {kind} that the runner has not",
                    received=", ".join(states),
                    fix="assign it in initOptimizer()",
                )
        if begins and self._process_place.ranks.is_main and not self._modules().has_reported:
            self._modules().has_reported = True
            print(f"the checkpoint has no state of {', '.join(begins)}, which begin anew", flush=True)

    def _reduceSum(self, value: Any) -> Any:
        """Returns the sum of the ranks' values on every rank; with one process the value itself. The
        gradient is that of the own value."""
        return _over_ranks(value, self._process_place, 1)

    def _reduceMean(self, value: Any) -> Any:
        """Returns the mean of the ranks' values on every rank; with one process the value itself. The
        gradient is that of the own value."""
        return _over_ranks(value, self._process_place, self._process_place.ranks.world_size)

    def _module_names(self) -> dict[int, str]:
        """Returns the attributes of the modules by the numbers that `getSaveDict` gives them."""
        found: dict[int, str] = {}
        for name, one in _attributes(self):
            number = self._modules().number(one) if isinstance(one, nn.Module) else None
            if number is not None:
                found.setdefault(number, name)
        return found

    def _modules(self) -> RegisteredModules:
        if _REGISTERED not in vars(self):
            vars(self)[_REGISTERED] = RegisteredModules(self._process_place)
        found: RegisteredModules = vars(self)[_REGISTERED]
        return found

    def _named(self, kind: str) -> dict[str, Any]:
        """Returns the optimizers, schedulers or scalers by attribute, those in lists and dicts as
        ``attribute.key``; each once."""
        found: dict[int, tuple[str, Any]] = {}
        for name, one in _attributes(self):
            if isinstance(one, _KINDS[kind]):
                found.setdefault(id(one), (name, one))
        return dict(found.values())

    def _register_held(self) -> None:
        modules = {name: one for name, one in _attributes(self) if isinstance(one, nn.Module) and "." in name}
        parameters = {name: one for name, one in _attributes(self) if isinstance(one, nn.Parameter)}
        self._modules().hold(modules, parameters)
        self._modules().synchronize()

    def _synchronize_ranks(self) -> None:
        self._modules().synchronize()


ModelBaseTorch = RunnerBaseTorch
"""The name before 0.3.2."""


def _attributes(runner: RunnerBaseTorch) -> Iterator[tuple[str, Any]]:
    """Yields the attributes of a runner, and what their lists, tuples and dicts hold."""
    waiting = deque((name, one) for name, one in vars(runner).items() if name not in _OWN)
    seen: set[int] = set()
    while waiting:
        name, one = waiting.popleft()
        yield name, one
        if isinstance(one, list | tuple | dict) and len(one) <= _MOST_ENTRIES and id(one) not in seen:
            seen.add(id(one))
            items = one.items() if isinstance(one, Mapping) else enumerate(one)
            waiting.extend((f"{name}.{key}", inner) for key, inner in items)


class _SumOverRanks(torch.autograd.Function):
    """A sum over the ranks, with the gradient of the own summand."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, place: ProcessPlace, divisor: int) -> Tensor:
        total = value.detach().to(torch.int64) if value.dtype == torch.bool else value.detach().clone()
        total = total.to(place.device)  # NCCL has no tensors on the CPU
        dist.all_reduce(total)
        return (total if divisor == 1 else total / divisor).to(value.device)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0], None, None


def _over_ranks(value: Any, place: ProcessPlace, divisor: int) -> Any:
    if not place.ranks.are_several:
        return value
    if not isinstance(value, Tensor):
        return _over_ranks(torch.tensor(value, dtype=torch.float64), place, divisor).item()
    return _SumOverRanks.apply(value, place, divisor)  # type: ignore[no-untyped-call]
