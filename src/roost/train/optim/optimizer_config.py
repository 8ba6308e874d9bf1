"""Builds the optimizers of the config's ``optimizers`` section, and checks them before the run."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import torch
from torch import Tensor, nn

from roost.base.errors import ConfigError
from roost.base.text.word_list import join_names
from roost.config import call_arguments, interpolation, objects, section_schema
from roost.config.other_tools import synonyms
from roost.config.sections.optimizers import GroupSettings, OptimizerSettings, SchedulerSettings
from roost.config.settings import Where
from roost.train.accelerators.registry import accelerator_of
from roost.train.distributed import sharded_tensors
from roost.train.model.parameters import MAX_LISTED_NAMES, Parameters
from roost.train.optim.optimizer import LR_SCALE, Optim
from roost.train.optim.schedulers import Warmup, build_scheduler


def build_optimizers(
    module: nn.Module,
    settings: Mapping[str, OptimizerSettings],
    *,
    totals: Mapping[str, int],
    root: Path | None = None,
    where: Where = lambda key: None,
) -> dict[str, Optim]:
    """Builds every optimizer of the ``optimizers`` section.

    Args:
        module: The module whose parameter names the globs match.
        settings: By name.
        totals: ``total_steps`` (absent if only time ends the run) and ``steps_per_epoch``, for the arguments
            that refer to them.
        root: The project's folder, for class paths. None: the working folder.
        where: Returns where a dotted key was set, for messages.

    Raises:
        ConfigError: A class path, an argument or a glob does not fit, or a parameter is in two optimizers
            or in none.
    """
    if not settings:
        raise ConfigError(
            "there is no optimizer",
            setting="optimizers",
            fix="add optimizers: {main: {class: torch.optim.AdamW, lr: 1e-3}}, or write Runner.optimizers()",
        )
    parameters = Parameters(module)
    if not parameters.trainable:
        raise ConfigError("the Runner has no trainable parameter", fix="assign its modules in Runner.build()")
    chosen = _assign_parameters(parameters, settings, where)
    built = {}
    for name, one in settings.items():
        builder = _OptimBuilder(f"optimizers.{name}", parameters, totals, root, where)
        built[name] = builder.build_optim(builder.with_totals(one), chosen[name])
    return built


def _assign_parameters(
    parameters: Parameters, settings: Mapping[str, OptimizerSettings], where: Where
) -> dict[str, list[str]]:
    """Returns the parameter names of each optimizer."""
    chosen: dict[str, list[str]] = {}
    for name, one in settings.items():
        key = f"optimizers.{name}.params"
        chosen[name] = parameters.matching(one.params, among=parameters.trainable, setting=key, where=where)
        if not chosen[name]:
            raise ConfigError(
                "the optimizer has no parameters", setting=key, received=one.params, where=where(key),
                fix='give globs over names, such as ["encoder.*"], or remove the optimizer',
            )  # fmt: skip
        for other in list(chosen)[:-1]:
            if both := [one for one in chosen[name] if one in set(chosen[other])]:
                which = "parameter is" if len(both) == 1 else "parameters are"
                raise ConfigError(
                    f"{len(both)} {which} in {other!r} and in {name!r}: {join_names(both, MAX_LISTED_NAMES)}",
                    setting=key,
                    where=where(key),
                    fix="make the globs disjoint",
                )
    taken = {one for mine in chosen.values() for one in mine}
    if free := [one for one in parameters.trainable if one not in taken]:
        which = "1 parameter belongs" if len(free) == 1 else f"{len(free)} parameters belong"
        raise ConfigError(
            f"{which} to no optimizer: {join_names(free, MAX_LISTED_NAMES)}",
            setting="optimizers",
            fix="add them to a `params`, or freeze them with requires_grad_(False) in Runner.build()",
        )
    return chosen


S = TypeVar("S", OptimizerSettings, GroupSettings, SchedulerSettings)


@dataclass(frozen=True)
class _OptimBuilder:
    """Builds one entry of the section ``optimizers``; ``key`` is its dotted key."""

    key: str
    parameters: Parameters
    totals: Mapping[str, int]
    root: Path | None
    where: Where

    def location(self, name: str = "") -> dict[str, Any]:
        key = f"{self.key}.{name}" if name else self.key
        return {"setting": key, "where": self.where(key)}

    def with_totals(self, one: OptimizerSettings) -> OptimizerSettings:
        """Fills the totals into the arguments of the optimizer, its groups and its scheduler."""
        groups = [self._with_totals(group, f"groups.{number}.") for number, group in enumerate(one.groups)]
        scheduler = self._with_totals(one.scheduler, "scheduler.") if one.scheduler is not None else None
        return msgspec.structs.replace(self._with_totals(one, ""), groups=groups, scheduler=scheduler)

    def _with_totals(self, one: S, prefix: str) -> S:
        for key, name in interpolation.find_references(
            one.arguments, interpolation.LATE_NAMES - self.totals.keys()
        ):
            fix = "set max_steps or max_epochs"
            raise ConfigError(
                f"{name} is unknown with max_time alone", **self.location(prefix + key), fix=fix
            )
        return msgspec.structs.replace(
            one, arguments=dict(interpolation.fill_late(one.arguments, self.totals))
        )

    def build_optim(self, one: OptimizerSettings, chosen: Sequence[str]) -> Optim:
        """Builds the optimizer of the parameters ``chosen``, with its groups and its scheduler.

        Raises:
            ConfigError: A class path, an argument or a glob does not fit.
        """
        made = objects.locate(one.class_, root=self.root, **self.location("class"))
        self._check_sections(one, made)
        self._check_parameter_kinds(one, made, chosen)
        if one.groups:  # so that an error of all groups is not reported as one of the first group
            self._optimizer(one, made, [{"params": self._tensors(chosen)}], chosen)
        groups = self._groups(one, chosen)
        optimizer = self._optimizer(one, made, groups, chosen)
        unit, monitor, scheduler = "step", None, None
        if one.scheduler is not None:
            unit, monitor = one.scheduler.unit, one.scheduler.monitor
            scheduler = build_scheduler(
                one.scheduler, optimizer, key=f"{self.key}.scheduler",
                totals=self.totals, root=self.root, where=self.where,
            )  # fmt: skip
        return Optim(
            optimizer,
            scheduler,
            unit=unit,
            monitor=monitor,
            max_grad_norm=one.max_grad_norm,
            grad_norm_type=one.grad_norm_type,
            every_n_steps=one.every_n_steps,
        )

    def _optimizer(
        self,
        one: OptimizerSettings,
        made: call_arguments.Target,
        groups: list[dict[str, Any]],
        chosen: Sequence[str],
    ) -> torch.optim.Optimizer:
        spec = {"class": one.class_, **one.arguments}
        assumed: dict[str, Any] = {}
        if one.fused == "auto":
            assumed = {"fused": True} if self._can_fuse(one, made, chosen) else {}
        elif call_arguments.accepts(made, "fused"):
            spec["fused"] = one.fused
        elif one.fused:
            raise ConfigError(
                f"{one.class_} has no fused kernel", received=True, **self.location("fused"), fix="remove it"
            )
        taken = {self._parameters_argument(one, made): groups}
        optimizer: Any = objects.build(spec, self.root, self.key, self.where, **taken, **assumed)
        if not isinstance(optimizer, torch.optim.Optimizer):
            fix = "name a subclass of torch.optim.Optimizer, or a function that makes one"
            raise ConfigError("is not an optimizer", received=one.class_, **self.location("class"), fix=fix)
        return optimizer

    def _parameters_argument(self, one: OptimizerSettings, made: call_arguments.Target) -> str:
        """Returns the name of the argument for the parameters: ``params`` in torch; a project may differ."""
        if ".py:" not in one.class_ or call_arguments.accepts(made, "params"):
            return "params"
        return next(iter(inspect.signature(made).parameters), "params")

    def _tensors(self, names: Sequence[str]) -> list[Tensor]:
        return [self.parameters.trainable[name] for name in names]

    # ---- groups -----------------------------------------------------------------------------------------

    def _groups(self, one: OptimizerSettings, chosen: Sequence[str]) -> list[dict[str, Any]]:
        """Returns the parameter groups. The first group that matches a parameter takes it; parameters that no
        group matches form the first parameter group."""
        left = {name: self.parameters.trainable[name] for name in chosen}
        built = []
        for number, group in enumerate(one.groups):
            at = self.location(f"groups.{number}.params")
            names = self.parameters.matching(
                group.params, among=chosen, setting=at["setting"], where=self.where
            )
            mine = {name: left.pop(name) for name in names if name in left}
            if not mine:
                reason = (
                    f"earlier groups have taken all that it matches ({join_names(names, MAX_LISTED_NAMES)})"
                )
                print(f"warning: {at['setting']}: {reason}; the group is left out", flush=True)
                continue
            own = self._own_arguments(one, group, number, mine)
            scale = one.lr_scale if group.lr_scale is None else group.lr_scale
            built.append({"params": list(mine.values()), **own, **_lr_scale_entry(scale)})
        rest = {"params": list(left.values()), **_lr_scale_entry(one.lr_scale)}
        return [rest, *built] if left else built

    def _own_arguments(
        self, one: OptimizerSettings, group: GroupSettings, number: int, mine: Mapping[str, Tensor]
    ) -> Mapping[str, Any]:
        """Returns a group's arguments with their types, checked on a temporary optimizer: torch checks only
        the arguments that all groups share, and accepts any name in a group."""
        if not group.arguments or ".py:" in one.class_:
            return group.arguments
        spec = {"class": one.class_, **one.arguments, **group.arguments}
        key = f"{self.key}.groups.{number}"
        tried: Any = objects.build(spec, self.root, key, self.where, params=list(mine.values()))
        return {name: tried.param_groups[0][name] for name in group.arguments}

    # ---- checks that torch makes later, or never --------------------------------------------------------

    def _check_sections(self, one: OptimizerSettings, made: call_arguments.Target) -> None:
        """Refuses a setting in the wrong section, which would be read as an argument."""
        self._refuse_misplaced(one.arguments, made, "")
        for number, group in enumerate(one.groups):
            self._refuse_misplaced(group.arguments, made, f"groups.{number}.")
        if one.scheduler is not None:
            scheduler = objects.locate(
                one.scheduler.class_, root=self.root, **self.location("scheduler.class")
            )
            self._refuse_misplaced(one.scheduler.arguments, scheduler, "scheduler.")

    def _refuse_misplaced(self, given: Mapping[str, Any], made: call_arguments.Target, prefix: str) -> None:
        homes = {"": OptimizerSettings, "scheduler.": SchedulerSettings}
        for name in given:
            right = [section for section, struct in homes.items() if name in section_schema.fields(struct)]
            if right and not call_arguments.accepts(made, name):
                at, fix = self.location(prefix + name), f"write it as {self.key}.{right[0]}{name}"
                raise ConfigError("is in the wrong section", received=given[name], **at, fix=fix)
            meant = synonyms.find_setting(name, section_schema.fields(OptimizerSettings))
            if meant is not None and call_arguments.rejects(made, name):
                fix = f"did you mean {self.key}.{meant}?"
                raise ConfigError(
                    "is not a setting", received=given[name], **self.location(prefix + name), fix=fix
                )

    def _check_parameter_kinds(
        self, one: OptimizerSettings, made: call_arguments.Target, chosen: Sequence[str]
    ) -> None:
        """Refuses, by name, parameters that a torch class would refuse without a name or in the first
        step."""
        if not inspect.isclass(made):
            return
        kinds = {kind.__name__ for kind in made.__mro__ if kind.__module__.startswith("torch.optim")}
        sparse = [name for name in chosen if name in self.parameters.sparse()]
        if "Muon" in kinds:
            flat = [name for name in chosen if self.parameters.trainable[name].dim() != 2]
            self._refuse(flat, one, "takes only matrices, and these are not")
        if "SparseAdam" in kinds:
            dense = [name for name in chosen if name in self.parameters.dense()]
            self._refuse(dense, one, "takes only sparse gradients, and these have dense ones")
        if kinds - {"Optimizer"} and not kinds & {"SGD", "Adagrad", "SparseAdam"}:
            self._refuse(sparse, one, "takes no sparse gradients, and these have sparse ones")
        if "LBFGS" in kinds and one.groups:
            raise ConfigError(f"{one.class_} takes no groups", **self.location("groups"), fix="remove them")

    def _refuse(self, names: Sequence[str], one: OptimizerSettings, why: str) -> None:
        if names:
            raise ConfigError(
                f"{one.class_} {why}: {join_names(names, MAX_LISTED_NAMES)}",
                **self.location("params"),
                fix="choose others in `params`, and give these to another optimizer",
            )

    def _can_fuse(self, one: OptimizerSettings, made: call_arguments.Target, chosen: Sequence[str]) -> bool:
        """Whether ``fused: auto`` uses the fused kernel. It saves a quarter of the step of a tiny model, and
        rounds differently from the plain one."""
        if not call_arguments.accepts(made, "fused") or ".py:" in one.class_:
            return False
        # Torch's fused SGD is no faster, and raises if a parameter gets its first gradient later than others.
        if one.class_ == "torch.optim.SGD":
            return False
        if any(one.arguments.get(name) for name in ("foreach", "differentiable")):
            return False
        if not self.parameters.sparse().isdisjoint(chosen):
            return False
        if sharded_tensors.any_sharded(self._tensors(chosen)) and not one.class_.endswith(
            (".Adam", ".AdamW")
        ):
            return False
        return all(
            p.is_floating_point() and accelerator_of(p.device).has_fused(one.class_)
            for p in self._tensors(chosen)
        )


def _lr_scale_entry(scale: float) -> dict[str, float]:
    return {LR_SCALE: scale} if scale != 1 else {}


def describe_optimizers(optims: Mapping[str, Optim]) -> list[str]:
    """Returns a line for each optimizer; no line for a single optimizer with one parameter group."""
    if len(optims) == 1 and all(len(optim.optimizer.param_groups) == 1 for optim in optims.values()):
        return []
    return [f"optimizer {name}: {_description(optim)}" for name, optim in optims.items()]


def _description(optim: Optim) -> str:
    optimizer, scheduler = optim.optimizer, optim.scheduler
    groups, scales = optimizer.param_groups, [group.get(LR_SCALE, 1.0) for group in optimizer.param_groups]
    schedule = ""
    if isinstance(scheduler, Warmup):
        scales, schedule = scheduler.scales, f" with {scheduler.steps} steps of warm-up"
        scheduler = scheduler.scheduler
    if scheduler is not None:
        schedule = f", {type(scheduler).__name__} each {optim.unit}{schedule}"
    own = [_group_settings(group, scale) for group, scale in zip(groups, scales, strict=False)]
    sizes = [sum(p.numel() for p in group["params"]) for group in groups]
    kind = f"{type(optimizer).__name__}{' (fused)' if optimizer.defaults.get('fused') else ''}"
    rest = []
    for size, group in zip(sizes[1:], own[1:], strict=False):
        differs = [f"{name} {value}" for name, value in group.items() if value != own[0].get(name)]
        rest.append(f"{size:,} with {', '.join(differs) or 'the same'}")
    counted = f"{sum(sizes):,} parameters" + (f" ({'; '.join(rest)})" if rest else "")
    often = f", one step every {optim.every_n_steps} steps" if optim.every_n_steps > 1 else ""
    return f"{kind}, {counted}, lr {own[0].get('lr')}{schedule}{often}"


def _group_settings(group: Mapping[str, Any], scale: float) -> dict[str, str]:
    """Returns the settings of a group as text; the learning rate with its ``lr_scale``."""
    ours = ("params", LR_SCALE, "initial_lr")
    shown = {name: str(value) for name, value in group.items() if name not in ours}
    return {**shown, "lr": f"{float(group['lr']) * scale:g}"} if "lr" in group else shown
