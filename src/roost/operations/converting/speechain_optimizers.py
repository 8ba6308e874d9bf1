"""Optimizers of SpeeChain, each with its rule of the learning rate."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from roost.base.errors import ConfigError
from roost.config.other_tools.option_tables.option_table import by_name
from roost.config.other_tools.option_tables.speechain_options import OPTIMIZERS
from roost.operations.converting.conversion import Conversion, whole_number

SCHEDULES = "schedules.py"
_KEYS = by_name([OPTIMIZERS])
_OWN = ("optim_type", "optim_conf", "optim_loss", "updated_modules", "step_per_update")


def add_optimizers(conversion: Conversion, given: Any, where: object) -> None:
    """Adds the optimizers of ``optim_sches``, and what determines them: clipping, factors, intervals.

    Raises:
        ConfigError: An optimizer is not described by ``type`` and ``conf``.
    """
    if not isinstance(given, Mapping) or not given:
        raise ConfigError(
            "expected a section with optimizers",
            setting="train_cfg.optim_sches",
            received=given,
            where=where,
            fix="write `optim_sches: {type: noam.Noamlr, conf: {...}}`",
        )
    several = {"main": given} if {"type", "conf"} >= given.keys() else given
    losses = {}
    for name, one in several.items():
        conf = one.get("conf") if isinstance(one, Mapping) else None
        if not isinstance(conf, Mapping) or not isinstance(one.get("type"), str):
            raise ConfigError(
                "expected `type` and `conf`",
                setting=f"train_cfg.optim_sches.{name}",
                received=one,
                where=where,
            )
        key = re.sub(r"\W", "_", name)
        _add_optimizer(conversion, f"optimizers.{key}", one["type"], conf, where)
        losses[key] = conf.get("optim_losses") or _value(conf, "optim_loss") or "loss"
    conversion.own["updates"] = losses


def _value(conf: Mapping[str, Any], name: str) -> Any:
    """Returns the value of a key, or its default there."""
    return conf.get(name, _KEYS[name].initial)


def _add_optimizer(
    conversion: Conversion, key: str, kind: str, conf: Mapping[str, Any], where: object
) -> None:
    put = conversion.put
    put(f"{key}.class", f"torch.optim.{_value(conf, 'optim_type')}")
    for name, value in (_value(conf, "optim_conf") or {}).items():
        put(f"{key}.{name}", value)
    modules = conf.get("updated_modules")
    if modules is not None:
        names = [modules] if isinstance(modules, str) else list(modules)
        put(f"{key}.params", [f"model.{name}.*" for name in names])
    clip = conversion.number("grad_clip")
    put(f"{key}.max_grad_norm", clip if clip > 0 else None, "grad_clip")
    put(f"{key}.grad_norm_type", conversion.number("grad_norm_type"), "grad_norm_type")
    put(f"{key}.lr_scale", conversion.number("ft_factor"), "ft_factor")
    every = whole_number(_value(conf, "step_per_update"), f"{key}.step_per_update", where, least=1)
    put(f"{key}.every_n_steps", every)
    _add_schedule(conversion, key, kind, {n: v for n, v in conf.items() if n not in _OWN}, where)


def _add_schedule(
    conversion: Conversion, key: str, kind: str, conf: Mapping[str, Any], where: object
) -> None:
    name = kind.rpartition(".")[2].lower()
    if name == "noamlr":
        steps = whole_number(_value(conf, "warmup_steps"), f"{key}.warmup_steps", where, least=1)
        rule: dict[str, Any] = {"class": f"{SCHEDULES}:Noam", "warmup_steps": steps}
        if (width := conf.get("d_model")) is not None:
            rule["d_model"] = whole_number(width, f"{key}.d_model", where, least=1)
            conversion.put(f"{key}.lr", 1.0)  # there the rate follows from d_model alone
        conversion.put(f"{key}.scheduler.class", "torch.optim.lr_scheduler.LambdaLR")
        conversion.put(f"{key}.scheduler.unit", "step")
        conversion.put(f"{key}.scheduler.lr_lambda", rule)
    elif name == "exponentdecaylr":
        conversion.put(f"{key}.scheduler.class", "torch.optim.lr_scheduler.ExponentialLR")
        conversion.put(f"{key}.scheduler.unit", "epoch")
        conversion.put(f"{key}.scheduler.gamma", _value(conf, "decay_factor"))
    else:
        conversion.lose(
            f"optim_sches: {kind}",
            f"a rule of your own; the learning rate is constant until `{key}.scheduler` names a function, as "
            f"in {SCHEDULES}",
        )
        conversion.own.setdefault("schedules", {})[key.rpartition(".")[2]] = {"type": kind, **conf}
