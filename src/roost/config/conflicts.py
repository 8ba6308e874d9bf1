"""Settings that cannot go together, found before anything is built."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from roost.base.errors import ConfigError
from roost.config.sections.data import BATCH_SIZE, DataSettings

if TYPE_CHECKING:
    from roost.config.sections.monitoring import StatisticsSettings
    from roost.config.sections.optimizers import OptimizerSettings
    from roost.config.settings import Devices, Settings


def check(settings: Settings, where: Callable[[str], str | None]) -> None:
    """That no two settings contradict each other, and none needs another one that is left out.

    Args:
        settings: All.
        where: Where a dotted key was set, for messages.

    Raises:
        ConfigError: Names both.
    """
    if settings.compile_dynamic and settings.step_mode != "compile":
        raise ConfigError(
            "is for step_mode: compile alone",
            setting="compile_dynamic",
            received=True,
            where=where("compile_dynamic"),
            fix="set step_mode: compile, or leave it out",
        )
    _check_devices(settings.devices, where)
    _check_rates(settings.optimizers, where)
    _check_order(settings.data, where)
    _check_mix(settings.data, where)
    if settings.statistics is not None:
        _check_statistics(settings.statistics, where)


def check_ranks(settings: Settings, strategy: str, world: int, where: Callable[[str], str | None]) -> None:
    """That nothing of the settings needs one process, where there are several.

    Args:
        settings: All.
        strategy: ddp or fsdp, wherever it was asked for.
        world: Number of ranks, of all machines.
        where: Where a dotted key was set, for messages.

    Raises:
        ConfigError: Names what needs one.
    """
    if strategy == "fsdp" and settings.on_step_error == "skip":
        raise ConfigError(
            "cannot be together with strategy: fsdp: a rank whose step fails holds no whole weights, and the "
            "others wait for its share of theirs",
            setting="on_step_error",
            received="skip",
            where=where("on_step_error"),
            fix="set on_step_error: raise, or strategy: ddp",
        )
    if strategy == "fsdp" and settings.step_mode == "compile":
        raise ConfigError(
            "cannot be together with strategy: fsdp: nobody has shown yet that both train the same",
            setting="step_mode",
            received="compile",
            where=where("step_mode"),
            fix="set step_mode: eager, or strategy: ddp",
        )
    for name, optimizer in settings.optimizers.items():
        if optimizer.class_.rpartition(".")[2] == "LBFGS":
            key = f"optimizers.{name}.class"
            raise ConfigError(
                f"evaluates the loss by itself, as often as it likes: {world} ranks cannot follow it",
                setting=key,
                received=optimizer.class_,
                where=where(key),
                fix="take another optimizer, or one process: strategy: single",
            )
    _check_batch_share(settings.data, world, where)


def _check_batch_share(data: DataSettings, world: int, where: Callable[[str], str | None]) -> None:
    """Of what a mix draws at once there is a batch of each set, and of tokens nobody knows the samples."""
    size = data.batch_size or (BATCH_SIZE if data.max_tokens is None else None)
    if size is not None and size < world and data.mix is None:
        raise ConfigError(
            f"is the whole batch, of which each rank takes its share: {world} ranks need {world} at least",
            setting="data.batch_size",
            received=size,
            where=where("data.batch_size"),
            fix=f"set data.batch_size: {world} or more, or ask for at most {size} devices",
        )


def refuse_backend(values: Mapping[str, Any], where: Callable[[str], str | None]) -> None:
    """That nobody chooses a backend of torch.distributed, at the top of a config: nothing would read it.

    Raises:
        ConfigError: Somebody does.
    """
    for key in _BACKEND_KEYS:
        if values.get(key) in _BACKENDS:
            raise ConfigError(
                "there is no choice: ranks on GPUs talk by NCCL, ranks on the CPU by gloo, as NCCL has none",
                setting=key,
                received=values[key],
                where=where(key),
                fix="leave it out; a key of your own needs another name",
            )


_BACKEND_KEYS = ("backend", "dist_backend", "distributed_backend")
_BACKENDS = ("nccl", "gloo", "mpi", "ucc")


_NUMERIC_ARGUMENTS = ("lr", "weight_decay", "momentum", "dampening", "eps", "alpha", "rho", "lr_decay")
"""Arguments of torch's own optimizers that are never text; the others only torch can tell."""


def _check_rates(optimizers: Mapping[str, OptimizerSettings], where: Callable[[str], str | None]) -> None:
    """A list is no learning rate, of whatever class; who writes one means a sweep. A text is no number of
    torch's own optimizers: told here, and not once a card was waited for."""
    for name, optimizer in optimizers.items():
        for argument in _NUMERIC_ARGUMENTS if optimizer.class_.startswith("torch.optim.") else ():
            value = optimizer.arguments.get(argument)
            if isinstance(value, str) and "${" not in value:
                key = f"optimizers.{name}.{argument}"
                fix = f"write {value} without quotes" if _is_number(value) else f"write one: {key}=0.001"
                what = "expected a number"
                raise ConfigError(what, setting=key, received=value, where=where(key), fix=fix)
        found = optimizer.arguments.get("lr")
        if isinstance(found, list):
            key = f"optimizers.{name}.lr"
            sweep = f"{key}={','.join(map(str, found))}"
            raise ConfigError(
                "expected a number",
                setting=key,
                received=found,
                where=where(key),
                fix=f"write one; several make a sweep of `roost submit`: {sweep}",
            )


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _check_devices(devices: Devices, where: Callable[[str], str | None]) -> None:
    if isinstance(devices, list) and (not devices or len(set(devices)) < len(devices)):
        raise ConfigError(
            "names no GPU" if not devices else "names a GPU twice",
            setting="devices",
            received=devices,
            where=where("devices"),
            fix="write auto, 2, or [0, 2]",
        )


def _check_statistics(asked: StatisticsSettings, where: Callable[[str], str | None]) -> None:
    if not (asked.gradients or asked.weights or asked.updates):
        raise ConfigError(
            "gradients, weights and updates are all false, so nothing would be recorded",
            setting="statistics",
            where=where("statistics"),
            fix="set one of them, or leave the section out",
        )
    if not asked.params:
        raise ConfigError(
            "names no parameters",
            setting="statistics.params",
            received=asked.params,
            where=where("statistics.params"),
            fix='"*" stands for all; or leave the section out',
        )


def _check_order(data: DataSettings, where: Callable[[str], str | None]) -> None:
    others = {"sort_by_length": data.sort_by_length, "max_tokens": data.max_tokens}
    for name, value in others.items():
        if data.weighted and value is not None:
            raise ConfigError(
                f"cannot be together with data.weighted{_at(where('data.weighted'))}: samples drawn by "
                "weight come in no other order, in batches of one size",
                setting=f"data.{name}",
                received=value,
                where=where(f"data.{name}"),
                fix="leave out one of the two",
            )
    if not data.count_padding and not any(one.max_tokens for one in (data, data.valid, data.test)):
        raise ConfigError(
            "says how data.max_tokens counts, which is not set",
            setting="data.count_padding",
            received=False,
            where=where("data.count_padding"),
            fix="set data.max_tokens, or leave it out",
        )


def _check_mix(data: DataSettings, where: Callable[[str], str | None]) -> None:
    mix = data.mix
    if mix is None:
        return
    if mix.mode != "weighted":
        if mix.weights:
            raise ConfigError(
                "are for data.mix.mode: weighted alone",
                setting="data.mix.weights",
                received=mix.weights,
                where=where(f"data.mix.weights.{next(iter(mix.weights))}"),
                fix=f"set data.mix.mode: weighted (it is {mix.mode}), or leave them out",
            )
        return
    if not mix.weights:
        raise ConfigError(
            "needs data.mix.weights",
            setting="data.mix.mode",
            received="weighted",
            where=where("data.mix.mode"),
            fix="give the share of each set, as in `weights: {clean: 3, noisy: 1}`",
        )
    others = {
        "weighted": data.weighted or None,
        "sort_by_length": data.sort_by_length,
        "max_tokens": data.max_tokens,
        "mix.batch_sizes": mix.batch_sizes or None,
    }
    for name, value in others.items():
        if value is not None:
            raise ConfigError(
                f"cannot be together with data.mix.mode: weighted{_at(where('data.mix.mode'))}: it draws "
                "each batch from all sets, in shuffled order, in batches of one size",
                setting=f"data.{name}",
                received=value,
                where=where(f"data.{name}"),
                fix="leave it out, or take another data.mix.mode",
            )


def _at(place: str | None) -> str:
    return f" (at {place})" if place is not None else ""
