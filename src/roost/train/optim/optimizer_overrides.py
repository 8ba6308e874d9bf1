"""What a fork, or a session that was forced, has otherwise of its optimizers: put into the state that it
goes on from.

A state of torch's optimizers holds their settings, too: learning rate, weight decay, where a schedule is.
Loaded as it is, it would bring back those of before: what was changed would be ignored in silence.
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
    """Changes the state of optimizers as it is read, where it was saved with other settings.

    The parameter groups take the new values. Where a schedule, or the learning rate that it starts from, was
    changed, the schedule is laid out anew and brought to where it was: as if it had been so from the
    beginning. One that follows validations cannot be, and begins anew; that is said.

    Args:
        optimizers: As they were built, before anything was loaded.
        changed: Of a checkpoint, the dotted settings that are others now, those that are no optimizers' among
            them.
    """

    def __init__(self, optimizers: Mapping[str, Optim], changed: Callable[[Manifest], Iterable[str]]) -> None:
        self._optimizers, self._changed = dict(optimizers), changed
        self._initial = {name: copy.deepcopy(_rate_state(optim)) for name, optim in self._optimizers.items()}

    def __call__(self, info: Manifest, states: Mapping[str, Any]) -> None:
        """Changes ``states["optimizers"]`` of a checkpoint."""
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
        said = ", ".join(sorted(keys))
        saved = state["optimizer"]["param_groups"]
        if _SCHEDULE_KEYS & set(keys):
            groups, state["scheduler"] = self._fast_forwarded(name, info)
            rate = float(groups[0]["lr"]) * float(groups[0].get(LR_SCALE, 1.0))
            said += f"; its learning rate is {rate:.4g} from here on"
            for loaded, own in zip(saved, groups, strict=False):
                for key in _RATE_KEYS - own.keys():
                    loaded.pop(key, None)
                loaded |= own
        for loaded, own in zip(saved, groups, strict=False):
            loaded |= {key: value for key, value in own.items() if key in keys}
        print(f"optimizers.{name} goes on with the new {said}", flush=True)

    def _fast_forwarded(self, name: str, info: Manifest) -> tuple[list[dict[str, Any]], Any]:
        """The groups and the schedule as if they had been so from the beginning."""
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
    """Steps a schedule as often as the run has come to; see `roost.train.hooks.Schedule`."""
    if optim.unit == "validation":
        print(f"the schedule of optimizers.{name} follows validations, and begins anew", flush=True)
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
