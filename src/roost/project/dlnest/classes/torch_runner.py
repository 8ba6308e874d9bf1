"""The base class of a runner with torch modules."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from roost.project.dlnest.classes.runner_base import RunnerBase


class RunnerBaseTorch(RunnerBase):
    """Moves, saves and synchronizes the modules, optimizers and schedulers that are assigned to it."""

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, nn.Module):
            value = self.register(value)
        object.__setattr__(self, name, value)

    def register(self, module: nn.Module, syncBN: bool = False) -> nn.Module:
        """Returns the module on the run's device."""
        return module.to(self._process_place.device)

    def getSaveDict(self) -> dict[Any, Any]:
        """Returns the states of modules by number, and of optimizers and schedulers by attribute."""
        named = vars(self)
        modules = [value for value in named.values() if isinstance(value, nn.Module)]
        return {
            **{number: module.state_dict() for number, module in enumerate(modules)},
            "optimizer": {k: v.state_dict() for k, v in named.items() if isinstance(v, Optimizer)},
            "scheduler": {k: v.state_dict() for k, v in named.items() if isinstance(v, LRScheduler)},
        }

    def loadSaveDict(self, saveDict: dict[Any, Any]) -> None:
        """Restores what `getSaveDict` returned."""
        modules = [value for value in vars(self).values() if isinstance(value, nn.Module)]
        for number, module in enumerate(modules):
            module.load_state_dict(saveDict[number])
        for kind in ("optimizer", "scheduler"):
            for name, state in saveDict.get(kind, {}).items():
                getattr(self, name).load_state_dict(state)


ModelBaseTorch = RunnerBaseTorch
"""The name before 0.3.2."""
