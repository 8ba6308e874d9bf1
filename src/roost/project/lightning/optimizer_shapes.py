"""What ``configure_optimizers`` of a LightningModule may return, as an `Optim`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from roost.base.errors import ContractError
from roost.project.lightning.module_contract import monitor_name
from roost.train.optim.optimizer import Optim

_KEYS = ("scheduler", "interval", "frequency", "monitor", "name", "strict", "reduce_on_plateau")


class ScheduleSet:
    """Several schedulers of one optimizer, or one that does not step each time.

    Args:
        schedulers: Each with its frequency: it steps at every n-th call.
    """

    def __init__(self, schedulers: Sequence[tuple[Any, int]]) -> None:
        self._schedulers, self._num_calls = schedulers, 0

    def step(self) -> None:
        """Counts a call, and steps the schedulers that are due."""
        self._num_calls += 1
        for scheduler, frequency in self._schedulers:
            if self._num_calls % frequency == 0:
                scheduler.step()

    def state_dict(self) -> dict[str, Any]:
        """Returns the number of calls, and the states of the schedulers."""
        return {"calls": self._num_calls, "schedulers": [one.state_dict() for one, _ in self._schedulers]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the result of `state_dict`."""
        self._num_calls = state["calls"]
        for (scheduler, _), own in zip(self._schedulers, state["schedulers"], strict=True):
            scheduler.load_state_dict(own)


def optim_of(returned: Any, *, max_grad_norm: float | None = None) -> Optim:
    """Returns the optimizer with its scheduler.

    Args:
        returned: An optimizer; a list of one; a pair of lists, of optimizers and of schedulers; or a mapping
            with ``optimizer`` and ``lr_scheduler``, or a list of one. A scheduler may be a mapping with
            ``interval``, ``frequency`` and ``monitor``.
        max_grad_norm: As for `Optim`.

    Raises:
        ContractError: There are no optimizers, several, or a scheduler that roost cannot step.
    """
    optimizers, schedulers = _lists(returned)
    if len(optimizers) != 1 or not isinstance(optimizers[0], torch.optim.Optimizer):
        kinds = [type(one).__name__ for one in optimizers]
        raise ContractError(
            "configure_optimizers() must return one optimizer: several need manual optimization",
            received=", ".join(kinds) or returned,
            fix="write a roost.Runner with `update`, which takes the steps of several optimizers",
        )
    given = [_scheduler(one) for one in schedulers]
    if not given:
        return Optim(optimizers[0], max_grad_norm=max_grad_norm)
    units = {one["interval"] for one in given}
    monitored = [one for one in given if one["needs_metric"]]
    if len(units) > 1 or (monitored and len(given) > 1):
        fix = "join them in one scheduler, such as torch's SequentialLR or ChainedScheduler"
        raise ContractError("the schedulers of one optimizer must count the same unit", fix=fix)
    if monitored:
        return _with_metric(optimizers[0], monitored[0], max_grad_norm)
    is_plain = len(given) == 1 and given[0]["frequency"] == 1
    steps = [(one["scheduler"], one["frequency"]) for one in given]
    scheduler = steps[0][0] if is_plain else ScheduleSet(steps)
    return Optim(optimizers[0], scheduler, unit=units.pop(), max_grad_norm=max_grad_norm)


def _with_metric(
    optimizer: torch.optim.Optimizer, given: dict[str, Any], max_grad_norm: float | None
) -> Optim:
    if given["monitor"] is None:
        raise ContractError(
            f"{type(given['scheduler']).__name__} needs a metric",
            setting="lr_scheduler.monitor",
            received=None,
            fix='give it: {"scheduler": scheduler, "monitor": "val_loss"}',
        )
    if given["frequency"] != 1:
        fix = "take frequency 1; it steps after each validation (`validate_every`)"
        raise ContractError("roost steps it after each validation", setting="frequency", fix=fix)
    name = monitor_name(given["monitor"])
    return Optim(optimizer, given["scheduler"], unit="validation", monitor=name, max_grad_norm=max_grad_norm)


def _lists(returned: Any) -> tuple[list[Any], list[Any]]:
    if isinstance(returned, Mapping):
        own = returned.get("lr_scheduler")
        if isinstance(own, Mapping) and "monitor" not in own:
            own = {**own, "monitor": returned.get("monitor")}
        elif own is not None and not isinstance(own, Mapping):
            own = {"scheduler": own, "monitor": returned.get("monitor")}
        return [returned.get("optimizer")], [own] if own is not None else []
    if isinstance(returned, list | tuple):
        if len(returned) == 2 and isinstance(returned[0], list | tuple):
            return list(returned[0]), list(returned[1])
        if len(returned) == 1 and isinstance(returned[0], Mapping):
            return _lists(returned[0])
        return list(returned), []
    return ([] if returned is None else [returned]), []


def _scheduler(given: Any) -> dict[str, Any]:
    made = {"interval": "epoch", "frequency": 1, "monitor": None}
    made |= dict(given) if isinstance(given, Mapping) else {"scheduler": given}
    unknown = [key for key in made if key not in _KEYS]
    if unknown or made.get("scheduler") is None or made["interval"] not in ("step", "epoch"):
        raise ContractError(
            "is no scheduler of Lightning's form",
            setting="configure_optimizers()",
            received=unknown[0] if unknown else made,
            fix='give {"scheduler": ..., "interval": "step" or "epoch", "frequency": 1, "monitor": ...}',
        )
    is_plateau = isinstance(made["scheduler"], torch.optim.lr_scheduler.ReduceLROnPlateau)
    return {**made, "needs_metric": is_plateau or bool(made.get("reduce_on_plateau"))}
