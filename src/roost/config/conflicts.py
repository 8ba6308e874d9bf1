"""Settings that cannot go together, found before anything is built."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from roost.base.errors import ConfigError

if TYPE_CHECKING:
    from roost.config.settings import Settings
    from roost.config.structs.data import DataSettings
    from roost.config.structs.watching import StatisticsSettings


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
    _check_order(settings.data, where)
    _check_mix(settings.data, where)
    if settings.statistics is not None:
        _check_statistics(settings.statistics, where)


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
