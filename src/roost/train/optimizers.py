"""Optimizers and their schedules, from the config's ``optimizers`` section or from the user's hands."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn

from roost.base.errors import CheckpointError, ConfigError
from roost.config import build, interpolation
from roost.config.settings import GroupSettings, OptimizerSettings, SchedulerSettings


@dataclass
class Optim:
    """An optimizer with what belongs to it.

    ``unit`` says what the scheduler counts: "step", "epoch" or "validation" (then ``monitor`` is given to
    its ``step``, as `ReduceLROnPlateau` wants it).
    """

    optimizer: torch.optim.Optimizer
    scheduler: Any = None
    unit: str = "step"
    monitor: str | None = None
    max_grad_norm: float | None = None
    grad_norm_type: float = 2.0
    parameters: list[Tensor] = field(init=False)

    def __post_init__(self) -> None:
        self.parameters = [p for group in self.optimizer.param_groups for p in group["params"]]

    def state_dict(self) -> dict[str, Any]:
        """State of the optimizer and of the scheduler."""
        scheduler = self.scheduler.state_dict() if self.scheduler is not None else None
        return {"optimizer": self.optimizer.state_dict(), "scheduler": scheduler}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes over what `state_dict` gave."""
        if self.scheduler is not None and state["scheduler"] is not None:
            self.scheduler.load_state_dict(state["scheduler"])
        # After the scheduler: building or loading one may write a learning rate into the groups.
        try:
            self.optimizer.load_state_dict(state["optimizer"])
        except ValueError as error:
            raise CheckpointError(
                f"the checkpoint does not fit the optimizer: {error}",
                fix="continue the package with its own code and settings",
            ) from error
        # It has stepped, in another process: without this torch warns when a scheduler steps first, as it
        # does after a validation that a stop had cut.
        self.optimizer._opt_called = True  # type: ignore[attr-defined]


def build_optimizers(
    module: nn.Module, settings: Mapping[str, OptimizerSettings], *, totals: Mapping[str, int]
) -> dict[str, Optim]:
    """Builds every optimizer of the ``optimizers`` section.

    Args:
        module: Its named parameters are what the globs match.
        settings: By name.
        totals: ``total_steps`` and ``steps_per_epoch``, for the arguments that mention them.

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
        chosen = _matching(trainable, one.params, f"optimizers.{name}.params")
        for parameter in chosen:
            if parameter in owner:
                raise ConfigError(
                    f"parameter {parameter!r} belongs to {owner[parameter]!r} and to {name!r}",
                    setting=f"optimizers.{name}.params",
                    fix="make the globs disjoint",
                )
            owner[parameter] = name
        built[name] = _build(name, one, {n: trainable[n] for n in chosen}, totals)
    free = [name for name in trainable if name not in owner]
    if free:
        raise ConfigError(
            f"{len(free)} parameters belong to no optimizer: {', '.join(free[:5])}, …",
            setting="optimizers",
            fix="add them to a `params`, or freeze them with requires_grad_(False) in Runner.build()",
        )
    return built


def _matching(parameters: Mapping[str, Tensor], patterns: str | Sequence[str], setting: str) -> list[str]:
    patterns = [patterns] if isinstance(patterns, str) else patterns
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in parameters):
            raise ConfigError(
                "the glob matches no parameter",
                setting=setting,
                received=pattern,
                fix=f"the names are like {', '.join(list(parameters)[:4])}",
            )
    return [name for name in parameters if any(fnmatchcase(name, pattern) for pattern in patterns)]


def _build(name: str, one: OptimizerSettings, chosen: dict[str, Tensor], totals: Mapping[str, int]) -> Optim:
    arguments = _resolved(one.arguments, totals)
    groups = _groups(name, one.groups, chosen, totals)
    spec = {"class": one.class_, **arguments, **_fused(one, chosen)}
    optimizer: Any = build.build(spec, params=groups)
    scheduler = _scheduler(name, one.scheduler, optimizer, totals) if one.scheduler else None
    return Optim(
        optimizer,
        scheduler,
        unit=one.scheduler.unit if one.scheduler else "step",
        monitor=one.scheduler.monitor if one.scheduler else None,
        max_grad_norm=one.max_grad_norm,
        grad_norm_type=one.grad_norm_type,
    )


def _resolved(arguments: Mapping[str, Any], totals: Mapping[str, int]) -> dict[str, Any]:
    return dict(interpolation.fill(arguments, totals))


def _groups(
    name: str, groups: Sequence[GroupSettings], chosen: dict[str, Tensor], totals: Mapping[str, int]
) -> list[dict[str, Any]]:
    """Parameter groups; the first that matches takes a parameter, the rest share the arguments."""
    left = dict(chosen)
    built = []
    for number, group in enumerate(groups):
        names = _matching(chosen, group.params, f"optimizers.{name}.groups.{number}.params")
        mine = [left.pop(n) for n in names if n in left]
        if mine:
            built.append({"params": mine, **_resolved(group.arguments, totals)})
    return [{"params": list(left.values())}, *built] if left else built


def _fused(one: OptimizerSettings, chosen: Mapping[str, Tensor]) -> dict[str, Any]:
    """``fused: auto`` takes the fused kernel where the class has one: on a tiny model it saves a quarter of
    the step, at the price of other rounding than the plain one."""
    if "fused" not in inspect.signature(build.locate(one.class_)).parameters:
        if one.fused is True:
            raise ConfigError("has no fused kernel", setting="optimizers.*.fused", received=one.class_)
        return {}
    if one.fused == "auto":
        usable = all(p.is_floating_point() and p.device.type in ("cpu", "cuda") for p in chosen.values())
        other = {"foreach", "differentiable"} & {key for key, value in one.arguments.items() if value}
        return {"fused": True} if usable and not other else {}
    return {"fused": one.fused}


def _scheduler(
    name: str, settings: SchedulerSettings, optimizer: torch.optim.Optimizer, totals: Mapping[str, int]
) -> Any:
    spec = {"class": settings.class_, **_resolved(settings.arguments, totals)}
    where = f"optimizers.{name}.scheduler"
    scheduler: Any = build.build(spec, optimizer=optimizer)
    plateau = isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau)
    if plateau and (settings.unit != "validation" or settings.monitor is None):
        raise ConfigError(
            "ReduceLROnPlateau looks at a metric",
            setting=where,
            fix="set unit: validation and monitor: valid/loss",
        )
    if not settings.warmup_steps:
        return scheduler
    if settings.unit != "step":
        raise ConfigError("needs unit: step", setting=f"{where}.warmup_steps", received=settings.unit)
    warmup = torch.optim.lr_scheduler.LinearLR(
        optimizer, start_factor=1 / (settings.warmup_steps + 1), total_iters=settings.warmup_steps
    )
    return torch.optim.lr_scheduler.SequentialLR(optimizer, [warmup, scheduler], [settings.warmup_steps])
