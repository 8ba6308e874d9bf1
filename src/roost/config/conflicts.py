"""Checks for settings that contradict each other, before anything is built."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from roost.base.errors import ConfigError
from roost.config import type_examples
from roost.config.sections.data import BATCH_SIZE, DataSettings
from roost.config.step_modes import STEP_MODES

if TYPE_CHECKING:
    from roost.config.sections.monitoring import StatisticsSettings
    from roost.config.sections.optimizers import OptimizerSettings
    from roost.config.settings import Settings


def check(settings: Settings, where: Callable[[str], str | None]) -> None:
    """Checks that no two settings contradict each other, and that none needs another one that is missing.

    Args:
        settings: All settings.
        where: Returns where a dotted key was set, for messages.

    Raises:
        ConfigError: The text names both settings.
    """
    if settings.compile_dynamic and not STEP_MODES[settings.step_mode].compiles:
        raise ConfigError(
            "applies only to step_mode: compile",
            setting="compile_dynamic",
            received=True,
            where=where("compile_dynamic"),
            fix="set step_mode: compile, or remove compile_dynamic",
        )
    _check_validations(settings, where)
    _check_rates(settings.optimizers, where)
    _check_order(settings.data, where)
    _check_mix(settings.data, where)
    if settings.statistics is not None:
        _check_statistics(settings.statistics, where)


def _check_validations(settings: Settings, where: Callable[[str], str | None]) -> None:
    """Checks that nothing needs the validations of a run that never validates."""
    if settings.validate_every != "never":
        return
    schedulers = {
        f"optimizers.{name}.scheduler": one.scheduler is not None and one.scheduler.unit == "validation"
        for name, one in settings.optimizers.items()
    }
    deciding = {
        "early_stopping": settings.early_stopping is not None,
        "checkpoint.best": bool(settings.checkpoint.best),
        **schedulers,
    }
    for key, is_set in deciding.items():
        if is_set:
            raise ConfigError(
                f"needs validations, but validate_every{_at(where('validate_every'))} is never",
                setting=key,
                where=where(key),
                fix="remove it, or set validate_every: 1ep",
            )


def check_ranks(settings: Settings, strategy: str, world: int, where: Callable[[str], str | None]) -> None:
    """Checks that every setting works with several ranks.

    Args:
        settings: All settings.
        strategy: ddp or fsdp, from the config or the command line.
        world: World size: the number of ranks on all machines.
        where: Returns where a dotted key was set, for messages.

    Raises:
        ConfigError: A setting needs a single process; the text names it.
    """
    if strategy == "fsdp" and settings.on_step_error == "skip":
        raise ConfigError(
            "cannot be combined with strategy: fsdp: a rank whose step fails has only shards of the weights, "
            "and the others wait for its shards",
            setting="on_step_error",
            received="skip",
            where=where("on_step_error"),
            fix="set on_step_error: raise, or strategy: ddp",
        )
    if strategy == "fsdp" and STEP_MODES[settings.step_mode].compiles:
        raise ConfigError(
            "cannot be combined with strategy: fsdp: it is not verified yet that both give the same training",
            setting="step_mode",
            received=settings.step_mode,
            where=where("step_mode"),
            fix="set step_mode: eager, or strategy: ddp",
        )
    for name, optimizer in settings.optimizers.items():
        if optimizer.class_.rpartition(".")[2] == "LBFGS":
            key = f"optimizers.{name}.class"
            raise ConfigError(
                f"evaluates the loss itself, as often as it needs: {world} ranks cannot do this in step",
                setting=key,
                received=optimizer.class_,
                where=where(key),
                fix="use another optimizer, or one process: strategy: single",
            )
    _check_batch_share(settings.data, world, where)


def _check_batch_share(data: DataSettings, world: int, where: Callable[[str], str | None]) -> None:
    """Checks that each rank gets at least one sample. Not checked for a mix, which draws a batch from each
    set, and for batches by tokens, whose number of samples is not known."""
    size = data.batch_size or (BATCH_SIZE if data.max_tokens is None else None)
    if size is not None and size < world and data.mix is None:
        raise ConfigError(
            f"is the whole batch, of which each rank gets a shard: {world} ranks need at least {world}",
            setting="data.batch_size",
            received=size,
            where=where("data.batch_size"),
            fix=f"set data.batch_size: {world} or more, or request at most {size} devices",
        )


def refuse_backend(values: Mapping[str, Any], where: Callable[[str], str | None]) -> None:
    """Checks that the top of a config does not choose a backend of torch.distributed: the key would have no
    effect.

    Raises:
        ConfigError: The config chooses one.
    """
    for key in _BACKEND_KEYS:
        if values.get(key) in _BACKENDS:
            raise ConfigError(
                "the backend cannot be chosen: ranks on GPUs use NCCL, ranks on the CPU use gloo",
                setting=key,
                received=values[key],
                where=where(key),
                fix="remove it; a key of your own needs another name",
            )


_BACKEND_KEYS = ("backend", "dist_backend", "distributed_backend")
_BACKENDS = ("nccl", "gloo", "mpi", "ucc")


_NUMERIC_ARGUMENTS = ("lr", "weight_decay", "momentum", "dampening", "eps", "alpha", "rho", "lr_decay")
"""Arguments of torch's own optimizers that are always numbers; torch itself checks the other ones."""


def _check_rates(optimizers: Mapping[str, OptimizerSettings], where: Callable[[str], str | None]) -> None:
    """Checks the numbers of optimizers before the run waits for a card. A list as the learning rate of any
    class is probably meant as a sweep; a text is not a number for torch's own optimizers."""
    for name, optimizer in optimizers.items():
        for argument in _NUMERIC_ARGUMENTS if optimizer.class_.startswith("torch.optim.") else ():
            value = optimizer.arguments.get(argument)
            if isinstance(value, str) and "${" not in value:
                key = f"optimizers.{name}.{argument}"
                fix = f"write {value} without quotes" if _is_number(value) else f"write one: {key}=0.001"
                if (several := type_examples.sweep_values(value)) is not None:
                    fix = (
                        f"write one: {key}=0.001; several are a sweep: `roost submit CONFIG {key}={several}`"
                    )
                problem = "expected a number"
                raise ConfigError(problem, setting=key, received=value, where=where(key), fix=fix)
        rate = optimizer.arguments.get("lr")
        if isinstance(rate, list):
            key = f"optimizers.{name}.lr"
            sweep = f"{key}={','.join(map(str, rate))}"
            raise ConfigError(
                "expected a number",
                setting=key,
                received=rate,
                where=where(key),
                fix=f"write one number; for a sweep, give several to `roost submit`: {sweep}",
            )


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _check_statistics(statistics: StatisticsSettings, where: Callable[[str], str | None]) -> None:
    if not (statistics.gradients or statistics.weights or statistics.updates):
        raise ConfigError(
            "gradients, weights and updates are all false, so nothing would be recorded",
            setting="statistics",
            where=where("statistics"),
            fix="set one of them, or remove the section",
        )
    if not statistics.params:
        raise ConfigError(
            "names no parameters",
            setting="statistics.params",
            received=statistics.params,
            where=where("statistics.params"),
            fix='write "*" for all, or remove the section',
        )


def _check_order(data: DataSettings, where: Callable[[str], str | None]) -> None:
    others = {"sort_by_length": data.sort_by_length, "max_tokens": data.max_tokens}
    for name, value in others.items():
        if data.weighted and value is not None:
            raise ConfigError(
                f"cannot be combined with data.weighted{_at(where('data.weighted'))}: samples drawn by "
                "weight have a random order and batches of one size",
                setting=f"data.{name}",
                received=value,
                where=where(f"data.{name}"),
                fix="remove one of the two",
            )
    if not data.count_padding and not any(one.max_tokens for one in (data, data.valid, data.test)):
        raise ConfigError(
            "determines how data.max_tokens counts, but data.max_tokens is not set",
            setting="data.count_padding",
            received=False,
            where=where("data.count_padding"),
            fix="set data.max_tokens, or remove data.count_padding",
        )


def _check_mix(data: DataSettings, where: Callable[[str], str | None]) -> None:
    mix = data.mix
    if mix is None:
        return
    if mix.mode != "weighted":
        if mix.weights:
            raise ConfigError(
                "apply only to data.mix.mode: weighted",
                setting="data.mix.weights",
                received=mix.weights,
                where=where(f"data.mix.weights.{next(iter(mix.weights))}"),
                fix=f"set data.mix.mode: weighted (it is {mix.mode}), or remove them",
            )
        return
    if not mix.weights:
        raise ConfigError(
            "needs data.mix.weights",
            setting="data.mix.mode",
            received="weighted",
            where=where("data.mix.mode"),
            fix="give the share of each set, such as `weights: {clean: 3, noisy: 1}`",
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
                f"cannot be combined with data.mix.mode: weighted{_at(where('data.mix.mode'))}: it draws "
                "each batch from all sets, in shuffled order, in batches of one size",
                setting=f"data.{name}",
                received=value,
                where=where(f"data.{name}"),
                fix="remove it, or use another data.mix.mode",
            )


def _at(location: str | None) -> str:
    return f" (at {location})" if location is not None else ""
