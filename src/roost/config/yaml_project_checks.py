"""Checks of a Runner and a Dataset that a config describes, before anything is built."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from roost.base.errors import ConfigError
from roost.base.text.suggestions import did_you_mean
from roost.config.section_schema import Where
from roost.config.sections.yaml_project import DatasetSettings, RunnerSettings

if TYPE_CHECKING:
    from roost.config.settings import Settings

_RESERVED_NAMES = ("loss", "weight", "skipped", "id", "grad_norm")
"""Names that a step records already."""
_NAME = re.compile(r"\w[\w-]*")


def check(settings: Settings, where: Where) -> None:
    """Checks the sections ``runner`` and ``dataset``, if the config has them.

    Raises:
        ConfigError: A key is not valid; the text has the key, where it was set, and a valid value.
    """
    if isinstance(settings.runner, RunnerSettings):
        _check_names(settings.runner, list(settings.optimizers), where)
        _check_updates(settings.runner, list(settings.optimizers), where)
        for key, texts, roots in _parts(settings.runner):
            _check_parts(key, texts, roots, where)
    if isinstance(settings.dataset, DatasetSettings):
        for split in ("train", "valid", "test"):
            if (given := getattr(settings.dataset, split)) is not None:
                _check_sets(f"dataset.{split}", given, where)
        if settings.dataset.collate == {}:
            fix = "name a function (Data.py:pad), or remove it"
            raise ConfigError("names no function", **_at("dataset.collate", where), fix=fix)


def _at(key: str, where: Where) -> dict[str, Any]:
    return {"setting": key, "where": where(key)}


# ---- losses and metrics ---------------------------------------------------------------------------------


def _check_names(runner: RunnerSettings, optimizers: list[str], where: Where) -> None:
    if not runner.losses:
        raise ConfigError(
            "is empty, but a model is trained by its losses",
            **_at("runner.losses", where),
            fix="add one: `label: {class: torch.nn.CrossEntropyLoss}`",
        )
    taken = {*_RESERVED_NAMES, *(f"{name}_{what}" for name in optimizers for what in ("loss", "grad_norm"))}
    if len(runner.losses) == 1:
        taken -= {"loss"}  # a single loss is recorded as `loss`, whatever its name
    for kind, names in (("losses", runner.losses), ("metrics", runner.metrics)):
        for name in names:
            key = f"runner.{kind}.{name}"
            if not _NAME.fullmatch(name):
                fix = "use only letters, digits, _ and -"
                raise ConfigError(
                    f"{name!r} is not a valid name", setting=key, where=where(f"{key}.class"), fix=fix
                )
            if kind == "losses" and not math.isfinite(weight := runner.losses[name].weight):
                at = _at(f"{key}.weight", where)
                raise ConfigError(
                    "is not a finite number", received=weight, **at, fix="write one, such as 0.5"
                )
            if name in taken or (kind == "metrics" and name in (*runner.losses, "loss")):
                raise ConfigError(
                    f"the name {name!r} is already used in the records",
                    setting=key,
                    where=where(f"{key}.class"),
                    fix="use another name",
                )


def _check_updates(runner: RunnerSettings, optimizers: list[str], where: Where) -> None:
    if not runner.updates:
        return
    for name, losses in runner.updates.items():
        key = f"runner.updates.{name}"
        if name not in optimizers:
            fix = f"{did_you_mean(name, optimizers)}there are {', '.join(optimizers) or 'none'}"
            raise ConfigError(f"there is no optimizer {name!r}", **_at(key, where), fix=fix)
        if not losses:
            raise ConfigError(
                "names no loss", **_at(key, where), fix=f"name some of {', '.join(runner.losses)}"
            )
        for loss in losses:
            if loss not in runner.losses:
                fix = f"{did_you_mean(loss, runner.losses)}there are {', '.join(runner.losses)}"
                raise ConfigError(f"there is no loss {loss!r}", received=losses, **_at(key, where), fix=fix)
        if len(set(losses)) < len(losses):
            fix = f"name each once; set runner.losses.{losses[0]}.weight to make it count more"
            raise ConfigError("names a loss twice", received=losses, **_at(key, where), fix=fix)
    updates = f"runner.updates{_location_suffix('runner.updates', where)}"
    used = {loss for losses in runner.updates.values() for loss in losses}
    for loss in runner.losses:
        if loss not in used:
            raise ConfigError(
                f"no optimizer uses it: {updates} does not name it",
                setting=f"runner.losses.{loss}",
                where=where(f"runner.losses.{loss}.class"),
                fix="add it there, or remove it",
            )
    for name in optimizers:
        if name not in runner.updates:
            raise ConfigError(
                f"it uses no loss: {updates} does not name it",
                setting=f"optimizers.{name}",
                where=where(f"optimizers.{name}.class"),
                fix="add it there, or remove it",
            )


def _location_suffix(key: str, where: Where) -> str:
    return f" (at {where(key)})" if where(key) is not None else ""


# ---- parts of a batch -----------------------------------------------------------------------------------

_OF_BATCH = ("batch",)
_OF_OUTPUT = ("batch", "output")
_OF_ALL = ("batch", "output", "model")


def _parts(runner: RunnerSettings) -> Iterator[tuple[str, list[str], tuple[str, ...]]]:
    """Yields each setting that names parts of a batch, with these parts and the names with which they may
    begin."""
    yield "runner.inputs", _as_list(runner.inputs), _OF_BATCH
    for name, loss in runner.losses.items():
        yield f"runner.losses.{name}.inputs", _as_list(loss.inputs), _OF_ALL
    for name, metric in runner.metrics.items():
        yield f"runner.metrics.{name}.inputs", _as_list(metric.inputs), _OF_ALL
    for name, part in runner.predicts.items():
        yield f"runner.predicts.{name}", [part], _OF_OUTPUT


def _as_list(given: str | list[str] | None) -> list[str]:
    return [] if given is None else [given] if isinstance(given, str) else given


def _check_parts(key: str, texts: list[str], roots: tuple[str, ...], where: Where) -> None:
    for text in texts:
        root, *names = text.split(".")
        if root not in roots or not all(names) or (root == "model" and names):
            raise ConfigError(
                f"{text!r} is not a part of {' or '.join(roots)}",
                **_at(key, where),
                fix=f"{did_you_mean(root, roots)}write it like batch.0, batch.image or output.logits",
            )


# ---- sets -----------------------------------------------------------------------------------------------


def _check_sets(key: str, given: Mapping[str, Any], where: Where) -> None:
    if "class" in given:
        return
    for name, one in given.items():
        if not isinstance(one, Mapping) or "class" not in one:
            raise ConfigError(
                "names neither a class nor several sets",
                setting=f"{key}.{name}",
                received=one,
                where=where(f"{key}.{name}"),
                fix=f"write {key} as {{class: roost.Arrays, ...}}, or as {{{name}: {{class: ...}}}}",
            )
    if not given:
        raise ConfigError("is empty", **_at(key, where), fix="name a class: {class: roost.Arrays, ...}")
