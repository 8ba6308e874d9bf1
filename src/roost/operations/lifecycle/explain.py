"""``run --print-config`` and ``run --explain``: what a run would take, without making one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from roost.base.errors import ConfigError
from roost.config import layers, settings, synonyms, user_options
from roost.config.sections.yaml_project import OptionSettings


@dataclass(frozen=True)
class SettingExplanation:
    """Where one setting comes from."""

    key: str
    help: str | None
    """One line, for a setting that is roost's."""
    values: str | None
    """What it takes, in words, for a setting that is roost's."""
    layers: list[tuple[str, Any]]
    """What each layer says, from lowest to highest: the last one holds. `layers.ABSENT`: taken away."""


def merged_settings(
    config: Path, *, tuning: Path | None = None, overrides: Sequence[str] = ()
) -> dict[str, Any]:
    """All settings of a run, merged; interpolations stand as written.

    Raises:
        NotFound: There is no such file.
        ConfigError: A file or an override is wrong.
    """
    return layers.load(config, tuning=tuning, overrides=overrides).values


@dataclass(frozen=True)
class DeclaredOption:
    """One option that a config declares."""

    name: str
    help: str
    takes: str
    """In words."""
    default: str
    """Likewise."""


def declared_options(
    config: Path, *, tuning: Path | None = None, overrides: Sequence[str] = ()
) -> list[DeclaredOption]:
    """The options of a config; whether their values are right is not looked at.

    Raises:
        NotFound: There is no such file.
        ConfigError: A file, an override or a declaration is wrong.
    """
    found = layers.load(config, tuning=tuning, overrides=overrides)
    return [
        DeclaredOption(
            name,
            one.help,
            user_options.describe_values(one),
            _format_default(one) + _format_value(one, found.values.get(name)),
        )
        for name, one in settings.declared_options(found.values, where=found.where).items()
    ]


def _format_default(one: OptionSettings) -> str:
    return "needed" if one.default is None else f"default {msgspec.json.encode(one.default).decode()}"


def _format_value(one: OptionSettings, value: Any) -> str:
    """What a file or an override says, where that is not the default."""
    return "" if value is None or value == one.default else f"; here {msgspec.json.encode(value).decode()}"


def explain(
    config: Path, key: str, *, tuning: Path | None = None, overrides: Sequence[str] = ()
) -> SettingExplanation:
    """What each layer says of one dotted key or section.

    Raises:
        NotFound: There is no such file.
        ConfigError: A file or an override is wrong, or nobody knows the key.
    """
    found = layers.load(config, tuning=tuning, overrides=overrides)
    said, help = found.explain(key), settings.describe(key)
    values = settings.allowed_values(key)
    if (option := settings.declared_options(found.values, where=found.where).get(key)) is not None:
        help, values = option.help or None, user_options.describe_values(option)
    if not said and help is None:
        known = [*found.provenance, *settings.known_keys(found.values)]
        raise ConfigError(
            f"there is no setting {key!r}", fix=synonyms.did_you_mean(key, known).strip() or None
        )
    return SettingExplanation(key, help, values, said)
