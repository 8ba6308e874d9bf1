"""Optimizers and their schedules, from the config's ``optimizers`` section or from the user's hands."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn

from roost.base.errors import ConfigError
from roost.config import build, interpolation
from roost.config.settings import GroupSettings, OptimizerSettings, SchedulerSettings, Where
from roost.train.optim import Optim as Optim


def build_optimizers(
    module: nn.Module,
    settings: Mapping[str, OptimizerSettings],
    *,
    totals: Mapping[str, int],
    where: Where = lambda key: None,
) -> dict[str, Optim]:
    """Builds every optimizer of the ``optimizers`` section.

    Args:
        module: Its named parameters are what the globs match.
        settings: By name.
        totals: ``total_steps`` (left out when only time ends the run) and ``steps_per_epoch``, for the
            arguments that mention them.
        where: Where a dotted key was set, for messages.

    Raises:
        ConfigError: A glob matches nothing, a parameter is in two optimizers or in none, or an argument
            does not fit its class.
    """
    if not settings:
        raise ConfigError(
            "there is no optimizer",
            setting="optimizers",
            fix="add optimizers: {main: {class: torch.optim.AdamW, lr: 1e-3}}, or write Runner.optimizers()",
        )
    trainable = {name: p for name, p in module.named_parameters() if p.requires_grad}
    if not trainable:
        raise ConfigError("the Runner has no trainable parameter", fix="assign its modules in Runner.build()")
    owner: dict[str, str] = {}
    built = {}
    for name, one in settings.items():
        key = f"optimizers.{name}"
        chosen = _matching(trainable, one.params, f"{key}.params", where)
        for parameter in chosen:
            if parameter in owner:
                raise ConfigError(
                    f"parameter {parameter!r} belongs to {owner[parameter]!r} and to {name!r}",
                    setting=f"{key}.params",
                    where=where(f"{key}.params"),
                    fix="make the globs disjoint",
                )
            owner[parameter] = name
        builder = _Builder(key, totals, where)
        built[name] = builder.optim(one, {n: trainable[n] for n in chosen})
    free = [name for name in trainable if name not in owner]
    if free:
        raise ConfigError(
            f"{len(free)} parameters belong to no optimizer: {', '.join(free[:5])}, …",
            setting="optimizers",
            fix="add them to a `params`, or freeze them with requires_grad_(False) in Runner.build()",
        )
    return built


def _matching(
    parameters: Mapping[str, Tensor], patterns: str | Sequence[str], setting: str, where: Where
) -> list[str]:
    patterns = [patterns] if isinstance(patterns, str) else patterns
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in parameters):
            raise ConfigError(
                "the glob matches no parameter",
                setting=setting,
                received=pattern,
                where=where(setting),
                fix=f"the names are like {', '.join(list(parameters)[:4])}",
            )
    return [name for name in parameters if any(fnmatchcase(name, pattern) for pattern in patterns)]


@dataclass(frozen=True)
class _Builder:
    """Of one entry of ``optimizers``; ``key`` is its dotted name."""

    key: str
    totals: Mapping[str, int]
    where: Where

    def optim(self, one: OptimizerSettings, chosen: dict[str, Tensor]) -> Optim:
        """The optimizer of ``chosen``, with its groups and its schedule.

        Raises:
            ConfigError: A class path, an argument or a glob does not fit; names the key and the place.
        """
        spec = {"class": one.class_, **self._filled(one.arguments, self.key)}
        assumed: dict[str, Any] = {}
        if self._has_fused(one):
            if one.fused != "auto":
                spec["fused"] = one.fused
            elif _can_fuse(one, chosen):
                assumed["fused"] = True
        groups = self._groups(one.groups, chosen)
        optimizer: Any = build.build(spec, None, self.key, self.where, params=groups, **assumed)
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise ConfigError("is no optimizer", received=one.class_, **self._at(f"{self.key}.class"))
        return Optim(
            optimizer,
            self._scheduler(one.scheduler, optimizer) if one.scheduler else None,
            unit=one.scheduler.unit if one.scheduler else "step",
            monitor=one.scheduler.monitor if one.scheduler else None,
            max_grad_norm=one.max_grad_norm,
            grad_norm_type=one.grad_norm_type,
        )

    def _at(self, key: str) -> dict[str, Any]:
        return {"setting": key, "where": self.where(key)}

    def _filled(self, arguments: Mapping[str, Any], key: str) -> dict[str, Any]:
        unknown = interpolation.LATE - self.totals.keys()
        for inner, name in interpolation.waiting(arguments, unknown, key):
            fix = "set max_steps or max_epochs"
            raise ConfigError(f"max_time gives no {name}", **self._at(inner), fix=fix)
        return dict(interpolation.fill(arguments, self.totals))

    def _groups(self, groups: Sequence[GroupSettings], chosen: dict[str, Tensor]) -> list[dict[str, Any]]:
        """Parameter groups; the first that matches takes a parameter, the rest share the arguments."""
        left = dict(chosen)
        built = []
        for number, group in enumerate(groups):
            key = f"{self.key}.groups.{number}"
            names = _matching(chosen, group.params, f"{key}.params", self.where)
            mine = [left.pop(n) for n in names if n in left]
            if mine:
                built.append({"params": mine, **self._filled(group.arguments, key)})
        return [{"params": list(left.values())}, *built] if left else built

    def _has_fused(self, one: OptimizerSettings) -> bool:
        made = build.locate(one.class_, **self._at(f"{self.key}.class"))
        if "fused" in inspect.signature(made).parameters:
            return True
        if one.fused is True:
            fix = f"remove it: {one.class_} has no fused kernel"
            raise ConfigError("there is none", received=True, **self._at(f"{self.key}.fused"), fix=fix)
        return False

    def _scheduler(self, settings: SchedulerSettings, optimizer: torch.optim.Optimizer) -> Any:
        key = f"{self.key}.scheduler"
        spec = {"class": settings.class_, **self._filled(settings.arguments, key)}
        scheduler: Any = build.build(spec, None, key, self.where, optimizer=optimizer)
        plateau = isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau)
        if plateau and (settings.unit != "validation" or settings.monitor is None):
            raise ConfigError(
                "ReduceLROnPlateau looks at a metric",
                setting=key,
                where=self.where(f"{key}.class"),
                fix="set unit: validation and monitor: valid/loss",
            )
        if not settings.warmup_steps:
            return scheduler
        if settings.unit != "step":
            at = self._at(f"{key}.warmup_steps")
            raise ConfigError("needs unit: step", received=settings.unit, **at)
        total = self.totals.get("total_steps")
        if total is not None and settings.warmup_steps >= total:
            said = f"the run ends after {total} steps, with the learning rate still climbing"
            print(f"{key}.warmup_steps is {settings.warmup_steps}: {said}", flush=True)
        warmup = torch.optim.lr_scheduler.LinearLR(
            optimizer, start_factor=1 / (settings.warmup_steps + 1), total_iters=settings.warmup_steps
        )
        return torch.optim.lr_scheduler.SequentialLR(optimizer, [warmup, scheduler], [settings.warmup_steps])


def _can_fuse(one: OptimizerSettings, chosen: Mapping[str, Tensor]) -> bool:
    """``fused: auto`` takes the fused kernel where the class has one: on a tiny model it saves a quarter of
    the step, at the price of other rounding than the plain one."""
    usable = all(p.is_floating_point() and p.device.type in ("cpu", "cuda") for p in chosen.values())
    return usable and not any(one.arguments.get(name) for name in ("foreach", "differentiable"))
