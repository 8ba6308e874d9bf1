"""Changed optimizer settings of a fork, or of a session with ``--force``, applied to the loaded state.

The state of a torch optimizer contains its settings too: learning rate, weight decay, the position of a
schedule. Loaded unchanged, it would restore the earlier settings, and the changes would be ignored silently.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from roost.package.checkpoints.checkpoint import Manifest
from roost.train.optim.optimizer import LR_SCALE, Optim
from roost.train.optim.schedulers import Warmup

_RATE_KEYS = frozenset(["lr", "initial_lr", LR_SCALE])
_KEYS_OUTSIDE_STATE = frozenset(["max_grad_norm", "grad_norm_type", "fused", "every_n_steps"])
_SCHEDULE_KEYS = frozenset(["lr", "lr_scale", "groups", "scheduler"])


class OptimizerOverrides:
    """Changes the loaded state of optimizers that were saved with other settings.

    The parameter groups get the new values. If a schedule, or its initial learning rate, was changed, the new
    schedule is stepped from the beginning to the position of the checkpoint. A schedule that counts
    validations starts again, and a line says so.

    Args:
        optimizers: As built, before any state is loaded.
        changed: Returns the changed dotted settings since a checkpoint; other sections are ignored.
    """

    def __init__(self, optimizers: Mapping[str, Optim], changed: Callable[[Manifest], Iterable[str]]) -> None:
        self._optimizers, self._changed = dict(optimizers), changed
        self._initial = {name: copy.deepcopy(_rate_state(optim)) for name, optim in self._optimizers.items()}

    def __call__(self, info: Manifest, states: Mapping[str, Any]) -> None:
        """Applies the changes to ``states["optimizers"]`` of a checkpoint."""
        for name, keys in self._changed_keys(self._changed(info)).items():
            state = states.get("optimizers", {}).get(name)
            if state is not None and keys - _KEYS_OUTSIDE_STATE:
                self._override(name, keys - _KEYS_OUTSIDE_STATE, state, info)

    def _changed_keys(self, changed: Iterable[str]) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for setting in changed:
            section, _, rest = setting.partition(".")
            name, _, key = rest.partition(".")
            if section == "optimizers" and name in self._optimizers:
                found.setdefault(name, set()).add(key.partition(".")[0])
        return found

    def _override(self, name: str, keys: Collection[str], state: dict[str, Any], info: Manifest) -> None:
        groups, _ = self._initial[name]
        description = ", ".join(sorted(keys))
        saved = state["optimizer"]["param_groups"]
        if _SCHEDULE_KEYS & set(keys):
            groups, state["scheduler"] = self._fast_forwarded(name, info)
            rate = float(groups[0]["lr"]) * float(groups[0].get(LR_SCALE, 1.0))
            description += f"; its learning rate is {rate:.4g} from here on"
            for loaded, own in zip(saved, groups, strict=False):
                for key in _RATE_KEYS - own.keys():
                    loaded.pop(key, None)
                loaded |= own
        for loaded, own in zip(saved, groups, strict=False):
            loaded |= {key: value for key, value in own.items() if key in keys}
        print(f"optimizers.{name} continues with the new {description}", flush=True)

    def _fast_forwarded(self, name: str, info: Manifest) -> tuple[list[dict[str, Any]], Any]:
        """Returns groups and schedule as if the new settings had held from the beginning."""
        optim = self._optimizers[name]
        before = copy.deepcopy(_rate_state(optim))
        _set_rate_state(optim, *copy.deepcopy(self._initial[name]))
        try:
            if optim.scheduler is not None:
                _advance_schedule(name, optim, info)
            return copy.deepcopy(_rate_state(optim))
        finally:
            _set_rate_state(optim, *before)


def _advance_schedule(name: str, optim: Optim, info: Manifest) -> None:
    """Steps a schedule to the position of a checkpoint; see `roost.train.hooks.Schedule`."""
    if optim.unit == "validation":
        print(f"the schedule of optimizers.{name} counts validations, and starts again", flush=True)
    for _ in range(info.step):
        if isinstance(optim.scheduler, Warmup):
            optim.scheduler.advance_warmup()
        if optim.unit == "step":
            optim.scheduler.step()
    for _ in range(info.epoch if optim.unit == "epoch" else 0):
        optim.scheduler.step()


def _rate_state(optim: Optim) -> tuple[list[dict[str, Any]], Any]:
    groups = [
        {key: value for key, value in group.items() if key != "params"}
        for group in optim.optimizer.param_groups
    ]
    return groups, optim.scheduler.state_dict() if optim.scheduler is not None else None


def _set_rate_state(optim: Optim, groups: list[dict[str, Any]], schedule: Any) -> None:
    if optim.scheduler is not None:
        optim.scheduler.load_state_dict(schedule)
    for group, values in zip(optim.optimizer.param_groups, groups, strict=True):
        for key in [key for key in group if key != "params" and key not in values]:
            del group[key]
        group |= values
