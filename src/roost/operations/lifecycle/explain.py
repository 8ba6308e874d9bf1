"""The operations ``run --print-config`` and ``run --explain``: the settings of a run, without making a
package."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from roost.base.errors import ConfigError
from roost.config import layers, settings, user_options
from roost.config.dlnest import dlnest_settings
from roost.config.layers import Config
from roost.config.other_tools import synonyms
from roost.config.run_settings import Contract
from roost.config.sections.yaml_project import OptionSettings
from roost.package.project_preflight import check_new_config

_MAX_DOTS = 2
"""Of a setting that help shows."""


@dataclass(frozen=True)
class SettingExplanation:
    """Where the value of one setting comes from."""

    key: str
    help: str | None
    """One line; None for a setting that roost does not declare."""
    values: str | None
    """The valid values, described; None for a setting that roost does not declare."""
    layers: list[tuple[str, Any]]
    """The value in each layer, from lowest to highest: the last one is effective. `nested_values.ABSENT`:
    removed."""


def merged_settings(
    config: Path, *, tuning: Path | None = None, overrides: Sequence[str] = ()
) -> dict[str, Any]:
    """Returns all settings of a run, merged; interpolations remain as written.

    Raises:
        NotFound: There is no such file.
        ConfigError: A file, an override or a setting is wrong, so that `run` would refuse it.
    """
    loaded = layers.load(config, tuning=tuning, overrides=overrides)
    if loaded.contract is Contract.DLNEST:
        dlnest_settings.parse_dlnest_settings(loaded.values, where=loaded.where)
    else:
        check_new_config(loaded, project=loaded.path.parent)
    return loaded.values


@dataclass(frozen=True)
class DeclaredOption:
    """An option that a config declares."""

    name: str
    help: str
    takes: str
    """The valid values, described."""
    default: str
    """The default, described."""


def declared_options(
    config: Path, *, tuning: Path | None = None, overrides: Sequence[str] = ()
) -> list[DeclaredOption]:
    """Returns the options of a config, without checking their values. Those of a config of DLNest's
    contract are the settings of its section ``roost``.

    Raises:
        NotFound: There is no such file.
        ConfigError: A file, an override or a declaration is wrong.
    """
    found = layers.load(config, tuning=tuning, overrides=overrides)
    if found.contract is Contract.DLNEST:
        return list(_settings_of_section(found))
    return [
        DeclaredOption(
            name,
            one.help,
            user_options.describe_values(one),
            _format_default(one) + _format_value(one, found.values.get(name)),
        )
        for name, one in settings.declared_options(found.values, where=found.where).items()
    ]


def _settings_of_section(found: Config) -> Iterator[DeclaredOption]:
    """Yields the settings of the section ``roost`` of a config of DLNest's contract, without inner
    sections and what is in those of the mirrors."""
    for key in dlnest_settings.known_keys(found.values):
        values, help = dlnest_settings.allowed_values(key), dlnest_settings.describe(key)
        if values in (None, "a section") or help is None or key.count(".") > _MAX_DOTS:
            continue
        given = found.explain(key)
        is_default = bool(given) and given[0][0] == layers.DEFAULT_LABEL
        shown = [f"default {_encoded(given[0][1])}"] if is_default else []
        if len(given) > is_default:
            shown.append(f"here {_encoded(given[-1][1])}")
        yield DeclaredOption(key, help, values or "", "; ".join(shown) or "not set")


def _encoded(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _format_default(one: OptionSettings) -> str:
    return "required" if one.default is None else f"default {msgspec.json.encode(one.default).decode()}"


def _format_value(one: OptionSettings, value: Any) -> str:
    """Returns the value of a file or an override, where it differs from the default."""
    return "" if value is None or value == one.default else f"; here {msgspec.json.encode(value).decode()}"


def explain(
    config: Path, key: str, *, tuning: Path | None = None, overrides: Sequence[str] = ()
) -> SettingExplanation:
    """Returns the value of one dotted key or section in each layer.

    Raises:
        NotFound: There is no such file.
        ConfigError: A file or an override is wrong, or there is no such key.
    """
    found = layers.load(config, tuning=tuning, overrides=overrides)
    own = dlnest_settings if found.contract is Contract.DLNEST else settings
    values_of_layers, help, values = found.explain(key), own.describe(key), own.allowed_values(key)
    if found.contract is Contract.NATIVE:
        option = settings.declared_options(found.values, where=found.where).get(key)
        if option is not None:
            help, values = option.help or None, user_options.describe_values(option)
    if not values_of_layers and help is None:
        near = synonyms.did_you_mean(key, found.known_keys()).strip()
        raise ConfigError(f"there is no setting {key!r}", fix=near or None)
    return SettingExplanation(key, help, values, values_of_layers)
