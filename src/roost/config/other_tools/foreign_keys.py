"""Keys of other tools in a config: refused before a run, because they would have no effect."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from roost.base.errors import ConfigError
from roost.config import settings, user_options
from roost.config.other_tools import known_tools
from roost.config.values.nested_values import ABSENT, value_at

if TYPE_CHECKING:
    from roost.config.layers import Config

_MAX_SHOWN = 8
_REFERENCE = re.compile(r"\$\{([^{}]*)\}")
_COMMAND_LINE = "command line"


def refuse(config: Config) -> None:
    """Checks that a config has no key that another tool has for a setting or a command of roost.

    A key is the user's own if ``options`` declares it, if a setting or an option refers to it (``max_epochs:
    ${num_epochs}``), or if the setting has the same value.

    Raises:
        ConfigError: The config is one of another tool, or has a key of one.
    """
    if config.values.get("runner") is None:
        _refuse_tool(config)
    own = _own_names(config.values)
    used = _names_in_use([layer.values for layer in config.layers])
    found = {
        key: _named(here, config.values)
        for key, here in known_tools.counterparts().items()
        if key.partition(".")[0] not in own
        and not _is_in_use(key, used)
        and _is_without_effect(config.values, key, here)
    }
    found = {key: here for key, here in found.items() if not any(one.startswith(f"{key}.") for one in found)}
    if found:
        off = {key for key in found if _is_off(found[key], _value_at(config.values, key), config.values)}
        first = min(found, key=lambda key: list(config.values).index(key.partition(".")[0]))
        location = config.where(first)
        raise _error(config.values, found, off, first, location, _value_at(config.values, first))


def refuse_added(before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """Checks that the overrides of a package's next session add no key of another tool. Keys that an older
    version accepted remain.

    Args:
        before: All settings without the overrides.
        after: All settings with them.

    Raises:
        ConfigError: A key of another tool was added, and would have no effect.
    """
    for key in known_tools.counterparts():
        value = _value_at(after, key)
        is_added = value is not None and _value_at(before, key) is None
        if is_added and (error := override_error(key, value, after)) is not None:
            raise error


def override_error(key: str, value: Any, values: Mapping[str, Any]) -> ConfigError | None:
    """Returns the error for an override that would add a key of another tool; None if no tool has the key, or
    it is the user's own, or the setting has the same value.

    Args:
        key: The dotted key.
        value: The value of the override.
        values: All settings to which the override is applied.
    """
    known = known_tools.counterparts()
    parts = key.split(".")
    names = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    found = next((name for name in names if name in known), None)
    if found is None or parts[0] in _own_names(values) or _is_in_use(key, _names_in_use([values])):
        return None
    here = _named(known[found], values)
    setting = known_tools.setting_of(here)
    if setting is not None and _value_at(values, setting) == value:
        return None
    off = {key} if _is_off(here, value, values) else set()
    return _error(values, {key: here}, off, key, _COMMAND_LINE, value)


def _own_names(values: Mapping[str, Any]) -> set[str]:
    """Returns the keys at the top that are not compared: settings, declared options and ambiguous names."""
    return {*settings.setting_names(), *user_options.names(values), *known_tools.AMBIGUOUS_NAMES}


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
        fix=f"{_way_to_begin(tool, config)}; {tool.page} compares the keys",
    )


def _way_to_begin(tool: known_tools.Tool, config: Config) -> str:
    if tool.converter is None:
        return "`roost new PROJECT` makes a config to begin with"
    return f"`roost convert {tool.converter} {config.path.name}` makes a project of it"


def _error(
    values: Mapping[str, Any],
    found: Mapping[str, str],
    off: Iterable[str],
    first: str,
    location: str | None,
    value: Any,
) -> ConfigError:
    """Returns the error for keys without effect.

    Args:
        values: All settings.
        found: The keys, each with what it is here.
        off: Those that switch off what is off by default.
        first: The key that the fix is about.
        location: Where it was set.
        value: Its value.
    """
    order = [*values, first.partition(".")[0]]
    keys = sorted(found, key=lambda key: order.index(key.partition(".")[0]))
    setting = known_tools.setting_of(found[first])
    example = _example(found[first], value)
    command = re.search(r"`(roost [^`]*)`", found[first])
    if first in off or (setting is None and command is None):
        way = "remove it"
    elif setting is None:
        way = f"type `{command[1]}`" if command is not None else ""
    elif location == _COMMAND_LINE:
        way = _typed(setting, value, example, values)
    else:
        way = f"write {_nested(setting, example or '...')}"
    outer = first.partition(".")[0]
    given = value if outer == first else {}
    kind = next(one for one in user_options.KINDS if type(given).__name__ == one)
    return ConfigError(
        f"{'this key has' if len(keys) == 1 else 'these keys have'} no effect: "
        f"{_listed([_described(key, found[key], key in off, values) for key in keys])}",
        where=location,
        fix=f"{way}, or declare a key of your own{' in the file' * (location == _COMMAND_LINE)}: "
        f"`options: {{{outer}: {{type: {kind}}}}}`",
    )


def _described(key: str, here: str, is_off: bool, values: Mapping[str, Any]) -> str:
    setting = known_tools.setting_of(here)
    if setting is None or (here != f"`{setting}`" and not is_off):
        return f"{key} is {here}"
    now = _value_at(values, setting)
    state = f", which is {'off' if now is None else _format_value(now)} already" if is_off else ""
    return f"{key} is `{setting}` here{state}"


def _example(here: str, value: Any) -> str | None:
    """Returns the value that a text of the tables gives, with the number of the other tool's key; None if it
    gives none, or the key switches something off."""
    example = known_tools.value_of(here)
    if example is None or value is False:
        return None
    return re.sub(r"^\d+", str(value), example) if type(value) is int else example


def _typed(setting: str, value: Any, example: str | None, values: Mapping[str, Any]) -> str:
    """Returns what to write on the command line for a setting."""
    if settings.is_section(setting) or setting == "include":
        return f"write {_nested(setting)} in the file"
    is_known = _value_at(values, setting) is not None or setting in settings.known_keys(values)
    given = example or (_format_value(value) if settings.accepts(setting, value) else "VALUE")
    return f"write {'' if is_known else '+'}{setting}={given}"


def _format_value(value: Any) -> str:
    return shlex.quote(value if isinstance(value, str) else json.dumps(value))


def _listed(named: list[str]) -> str:
    more = len(named) - _MAX_SHOWN
    return "; ".join([*islice(named, _MAX_SHOWN), *([f"and {more} more"] if more > 0 else [])])


def _nested(key: str, value: str = "...") -> str:
    """Returns a dotted key as YAML writes it: ``data: {batch_size: ...}``."""
    *outer, last = key.split(".")
    return f"`{''.join(f'{name}: {{' for name in outer)}{last}: {value}{'}' * len(outer)}`"


def _named(here: str, values: Mapping[str, Any]) -> str:
    """Returns a text of the tables with the name of the config's first optimizer."""
    return here.replace("optimizers.NAME", f"optimizers.{next(iter(values.get('optimizers') or {}), 'NAME')}")


# --- keys in use --------------------------------------------------------------------------------------


def _names_in_use(layers: list[Mapping[str, Any]]) -> set[str]:
    """Returns the dotted keys to which settings and declared options refer as ``${a.b}``, directly or by
    other keys."""
    roots = {*settings.setting_names(), *(name for values in layers for name in user_options.names(values))}
    left = [name for values in layers for key in roots for name in _references(values.get(key))]
    used: set[str] = set()
    while left:
        name = left.pop()
        if name not in used:
            used.add(name)
            left += [inner for values in layers for inner in _references(_value_at(values, name))]
    return used


def _is_in_use(key: str, used: Iterable[str]) -> bool:
    return any(name == key or key.startswith(f"{name}.") for name in used)


def _references(values: object) -> Iterator[str]:
    """Yields the dotted keys to which values refer as ``${a.b}``."""
    if isinstance(values, Mapping):
        values = list(values.values())
    if isinstance(values, list):
        for value in values:
            yield from _references(value)
    elif isinstance(values, str):
        yield from _REFERENCE.findall(values)


# --- keys without effect ------------------------------------------------------------------------------


def _is_without_effect(values: Mapping[str, Any], key: str, here: str) -> bool:
    """Whether a config has a key, and the setting that is meant has another value. A setting of optimizers is
    not meant if the config describes none: the Runner makes them."""
    given, setting = _value_at(values, key), known_tools.setting_of(here)
    if given is None or setting is None:
        return given is not None
    section, _, rest = setting.partition("NAME")
    names = (
        [setting]
        if section == setting
        else [f"{section}{one}{rest}" for one in values.get("optimizers") or {}]
    )
    return any(_value_at(values, name) != given for name in names)


def _is_off(here: str, value: Any, values: Mapping[str, Any]) -> bool:
    """Whether a value is false, and the setting that is meant has its default: the key says what holds."""
    setting = known_tools.setting_of(here)
    return (
        value is False
        and setting is not None
        and _value_at(values, setting) == _value_at(settings.defaults(values), setting)
    )


def _value_at(values: Mapping[str, Any], key: str) -> Any:
    """Returns the value of a dotted key; None for one that is not set, too: both have no effect."""
    found = value_at(values, tuple(key.split(".")))
    return None if found is ABSENT else found
