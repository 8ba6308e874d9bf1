"""``options``: the user's own keys at the top of a config, declared with type, default and help."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from roost.base.errors import ConfigError
from roost.base.text.suggestions import closest_match
from roost.config.section_schema import Where
from roost.config.sections.yaml_project import OptionSettings

LAYER_LABEL = "option"
"""The label of the layer with the defaults of options, above roost's own defaults."""
_KINDS: dict[str, tuple[str, tuple[type, ...]]] = {
    "int": ("a whole number", (int,)),
    "float": ("a number", (int, float)),
    "str": ("a text", (str,)),
    "bool": ("true or false", (bool,)),
    "list": ("a list", (list,)),
}
_NUMBERS = ("int", "float")


def defaults(values: Mapping[str, Any], taken: Collection[str]) -> dict[str, Any]:
    """Returns the defaults of the options that ``values`` declare, except for names ``taken`` by settings."""
    return {
        name: one["default"]
        for name, one in _declared(values).items()
        if isinstance(one, Mapping) and one.get("default") is not None and name not in taken
    }


def names(values: Mapping[str, Any]) -> list[str]:
    """Returns the names of the options that ``values`` declare."""
    return list(_declared(values))


def _declared(values: Mapping[str, Any]) -> Mapping[str, Any]:
    found = values.get("options")
    return found if isinstance(found, Mapping) else {}


def check(
    declared: Mapping[str, OptionSettings], values: Mapping[str, Any], taken: Collection[str], where: Where
) -> None:
    """Checks the declarations of all options, and that each option has a valid value.

    Args:
        declared: The section ``options``.
        values: All settings, with resolved interpolations.
        taken: Names of roost's settings.
        where: Returns where a dotted key was set, for messages.

    Raises:
        ConfigError: A declaration or value is not valid; the text has the option, its value, where it was
            set, and the valid values.
    """
    for name, one in declared.items():
        _check_declaration(name, one, taken, where)
    for name, one in declared.items():
        if values.get(name) is None:
            _refuse_missing(name, one, values, [*declared, *taken], where)
        place = where(name)
        _check_value(name, one, values[name], where(_default(name)) if place == LAYER_LABEL else place)


def _default(name: str) -> str:
    return f"options.{name}.default"


def _check_declaration(name: str, one: OptionSettings, taken: Collection[str], where: Where) -> None:
    place = where(f"options.{name}.type")
    if name in taken or not re.fullmatch(r"\w[\w-]*", name):
        reason = "is a setting of roost" if name in taken else "is not a valid name"
        fix = "use another name, of letters, digits and _"
        raise ConfigError(f"{name!r} {reason}", setting="options", where=place, fix=fix)
    for bound in ("min", "max"):
        if getattr(one, bound) is not None and one.type not in _NUMBERS:
            raise ConfigError(
                f"applies only to int and float, but this option is of type {one.type}",
                setting=f"options.{name}.{bound}",
                received=getattr(one, bound),
                where=where(f"options.{name}.{bound}"),
                fix="remove it",
            )
    for number, choice in enumerate(one.choices):
        if not _is_of(one, choice):
            raise ConfigError(
                f"is not a value of type {one.type}",
                setting=f"options.{name}.choices.{number}",
                received=choice,
                where=where(f"options.{name}.choices"),
                fix=_suggest_fix(name, one, choice) or f"write {_KINDS[one.type][0]}",
            )
    if one.min is not None and one.max is not None and not one.min <= one.max:
        raise ConfigError(
            f"is above max: {one.max:g}",
            setting=f"options.{name}.min",
            received=one.min,
            where=where(f"options.{name}.min"),
            fix="exchange min and max",
        )
    if one.default is not None:
        _check_value(name, one, one.default, where(_default(name)))


def _check_value(name: str, one: OptionSettings, value: Any, place: str | None) -> None:
    if not _fits(one, value):
        raise ConfigError(
            f"expected {describe_values(one)}{f' ({one.help})' if one.help else ''}",
            setting=name,
            received=value,
            where=place,
            fix=_suggest_fix(name, one, value),
        )


def _fits(one: OptionSettings, value: Any) -> bool:
    if not _is_of(one, value):
        return False
    if one.choices and value not in one.choices:
        return False
    if one.type not in _NUMBERS:
        return True
    number: Any = value  # nan is outside of all bounds
    return (one.min is None or number >= one.min) and (one.max is None or number <= one.max)


def _is_of(one: OptionSettings, value: Any) -> bool:
    _, kinds = _KINDS[one.type]
    return isinstance(value, kinds) and (one.type == "bool" or not isinstance(value, bool))


def describe_values(one: OptionSettings) -> str:
    """Returns a description of an option's values: ``a whole number >= 1 and <= 512``."""
    if one.choices:
        return " or ".join(repr(choice) for choice in one.choices)
    bounds = [f" {sign} {limit:g}" for sign, limit in ((">=", one.min), ("<=", one.max)) if limit is not None]
    return _KINDS[one.type][0] + " and".join(bounds)


def _suggest_fix(name: str, one: OptionSettings, value: Any) -> str | None:
    texts = [choice for choice in one.choices if isinstance(choice, str)]
    if isinstance(value, str) and (meant := closest_match(value, texts)) is not None:
        return f"did you mean {meant!r}?"
    if one.type == "int" and isinstance(value, float) and value.is_integer():
        return f"write {int(value)}"
    if one.type == "str" and isinstance(value, bool | int | float):
        return f"quote it, as in `{name}: '{value}'`"
    return None


def _refuse_missing(
    name: str, one: OptionSettings, values: Mapping[str, Any], known: Collection[str], where: Where
) -> None:
    others = [key for key in values if key not in known]
    meant = closest_match(name, others, max_distance=2) if len(name) > 3 else None
    if meant is not None:
        fix = f"{meant!r} is not an option; write {name}"
    else:
        help_suffix = f" ({one.help})" if one.help else ""
        fix = f"give {name}=..., {describe_values(one)}{help_suffix}"
    raise ConfigError(
        "has no default and no value",
        setting=name,
        where=where(meant) if meant is not None else where(f"options.{name}.type"),
        fix=fix,
    )
