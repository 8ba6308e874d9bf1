"""Keys of other tools in a config: refused before a run, because they would have no effect."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from roost.base.errors import ConfigError
from roost.config import settings, user_options
from roost.config.layers import Config
from roost.config.other_tools import known_tools

_MAX_SHOWN = 8
_REFERENCE = re.compile(r"\$\{([^{}]*)\}")


def refuse(config: Config) -> None:
    """Checks that a config has no key that another tool has for a setting of roost.

    A key is the user's own if ``options`` declares it, if a setting refers to it (``max_epochs:
    ${num_epochs}``), or if the setting has the same value.

    Raises:
        ConfigError: The config is one of another tool, or has a key of one.
    """
    if config.values.get("runner") is None:
        _refuse_tool(config)
    own = {*settings.setting_names(), *user_options.names(config.values), *known_tools.AMBIGUOUS_NAMES}
    used = {name for layer in config.layers for name in _references(layer.values)}
    optimizer = next(iter(config.values.get("optimizers") or {}), "NAME")
    found = {
        key: here.replace("NAME", optimizer)
        for key, here in {**known_tools.settings_by_key(), **known_tools.MISPLACED_NAMES}.items()
        if key.partition(".")[0] not in own
        and not any(name == key or key.startswith(f"{name}.") for name in used)
        and _is_without_effect(config.values, key, here)
    }
    if found:
        raise _error(config, found)


def _refuse_tool(config: Config) -> None:
    tool = known_tools.find_tool(config.values)
    if tool is None:
        return
    found = tool.find_keys(config.values)
    named = [f"{key} is {here}" for key, here in found.items()]
    raise ConfigError(
        f"this looks like a config of {tool.name}; its keys have other names here: {_listed(named)}"
        if named
        else f"this looks like a config of {tool.name}",
        where=next(filter(None, map(config.where, [*found, *config.values])), None),
        fix=f"`roost new PROJECT` makes a config to begin with; {tool.page} compares the keys",
    )


def _error(config: Config, found: Mapping[str, str]) -> ConfigError:
    order = list(config.values)
    keys = sorted(found, key=lambda key: order.index(key.partition(".")[0]))
    outer = keys[0].partition(".")[0]
    kind = next((one for one in user_options.KINDS if type(config.values[outer]).__name__ == one), None)
    own = (
        "give a key of your own another name"
        if kind is None
        else f"declare a key of your own: `options: {{{outer}: {{type: {kind}}}}}`"
    )
    return ConfigError(
        f"{'this key has' if len(keys) == 1 else 'these keys have'} no effect: "
        f"{_listed([f'{key} is `{found[key]}` here' for key in keys])}",
        where=config.where(keys[0]),
        fix=f"write {_nested(found[keys[0]])}, or {own}",
    )


def _listed(named: list[str]) -> str:
    more = len(named) - _MAX_SHOWN
    return "; ".join([*islice(named, _MAX_SHOWN), *([f"and {more} more"] if more > 0 else [])])


def _nested(key: str) -> str:
    """Returns a dotted key as YAML writes it: ``data: {batch_size: ...}``."""
    *outer, last = key.split(".")
    return f"`{''.join(f'{name}: {{' for name in outer)}{last}: ...{'}' * len(outer)}`"


def _references(values: object) -> Iterator[str]:
    """Yields the dotted keys to which values refer as ``${a.b}``."""
    if isinstance(values, Mapping):
        values = list(values.values())
    if isinstance(values, list):
        for value in values:
            yield from _references(value)
    elif isinstance(values, str):
        yield from _REFERENCE.findall(values)


def _is_without_effect(values: Mapping[str, Any], key: str, here: str) -> bool:
    """Whether a config has a key, and the setting that is meant has another value. A setting of optimizers is
    not meant if the config describes none: the Runner makes them."""
    given = _value_at(values, key)
    if given is None:
        return False
    section, _, rest = here.partition("NAME")
    names = [here] if section == here else [f"{section}{one}{rest}" for one in values.get("optimizers") or {}]
    return any(_value_at(values, name) != given for name in names)


def _value_at(values: object, key: str) -> Any:
    for name in key.split("."):
        values = values.get(name) if isinstance(values, Mapping) else None
    return values
