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
class Explanation:
    """Where one setting comes from."""

    key: str
    help: str | None
    """One line, for a setting that is roost's."""
    values: str | None
    """What it takes, in words, for a setting that is roost's."""
    layers: list[tuple[str, Any]]
    """What each layer says, from lowest to highest: the last one holds. `layers.ABSENT`: taken away."""


def merged(config: Path, *, tuning: Path | None = None, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """All settings of a run, merged; interpolations stand as written.

    Raises:
        NotFound: There is no such file.
        ConfigError: A file or an override is wrong.
    """
    return layers.load(config, tuning=tuning, overrides=overrides).values


@dataclass(frozen=True)
class Declared:
    """One option that a config declares."""

    name: str
    help: str
    takes: str
    """In words."""
    default: str
    """Likewise."""


def declared(config: Path, *, tuning: Path | None = None, overrides: Sequence[str] = ()) -> list[Declared]:
    """The options of a config; whether their values are right is not looked at.

    Raises:
        NotFound: There is no such file.
        ConfigError: A file, an override or a declaration is wrong.
    """
    found = layers.load(config, tuning=tuning, overrides=overrides)
    return [
        Declared(name, one.help, user_options.takes(one), _default(one) + _set(one, found.values.get(name)))
        for name, one in settings.declared(found.values, where=found.where).items()
    ]


def _default(one: OptionSettings) -> str:
    return "needed" if one.default is None else f"default {msgspec.json.encode(one.default).decode()}"


def _set(one: OptionSettings, value: Any) -> str:
    """What a file or an override says, where that is not the default."""
    return "" if value is None or value == one.default else f"; here {msgspec.json.encode(value).decode()}"


def explain(
    config: Path, key: str, *, tuning: Path | None = None, overrides: Sequence[str] = ()
) -> Explanation:
    """What each layer says of one dotted key or section.

    Raises:
        NotFound: There is no such file.
        ConfigError: A file or an override is wrong, or nobody knows the key.
    """
    found = layers.load(config, tuning=tuning, overrides=overrides)
    said, help = found.explain(key), settings.describe(key)
    values = settings.allowed(key)
    if (option := settings.declared(found.values, where=found.where).get(key)) is not None:
        help, values = option.help or None, user_options.takes(option)
    if not said and help is None:
        known = [*found.provenance, *settings.known_keys(found.values)]
        raise ConfigError(f"there is no setting {key!r}", fix=synonyms.proposal(key, known).strip() or None)
    return Explanation(key, help, values, said)
