"""``options``: the user's own keys at the top of a config, declared with type, default and help."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from roost.base.errors import ConfigError
from roost.base.text.suggestions import closest_match
from roost.config.section_schema import Where
from roost.config.sections.yaml_project import OptionSettings
from roost.config.type_examples import sweep_values

LAYER_LABEL = "option"
"""The label of the layer with the defaults of options, above roost's own defaults."""
KINDS: dict[str, tuple[str, tuple[type, ...]]] = {
    "int": ("a whole number", (int,)),
    "float": ("a number", (int, float)),
    "str": ("a text", (str,)),
    "bool": ("true or false", (bool,)),
    "list": ("a list", (list,)),
    "dict": ("a section", (dict,)),
}
_NUMBERS = ("int", "float")


def defaults(values: Mapping[str, Any], taken: Collection[str]) -> dict[str, Any]:
    """Returns the defaults of the options that ``values`` declare, except for names ``taken`` by settings."""
    return {
        name: option["default"]
        for name, option in _declared(values).items()
        if isinstance(option, Mapping) and option.get("default") is not None and name not in taken
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
    for name, option in declared.items():
        _check_declaration(name, option, taken, where)
    for name, option in declared.items():
        if values.get(name) is None:
            _refuse_missing(name, option, values, [*declared, *taken], where)
        location = where(name)
        _check_value(
            name, option, values[name], where(_default(name)) if location == LAYER_LABEL else location
        )


def _default(name: str) -> str:
    return f"options.{name}.default"


def _check_declaration(name: str, option: OptionSettings, taken: Collection[str], where: Where) -> None:
    location = where(f"options.{name}.type")
    if name in taken or not re.fullmatch(r"\w[\w-]*", name):
        reason = "is a setting of roost" if name in taken else "is not a valid name"
        fix = "use another name, of letters, digits and _"
        raise ConfigError(f"{name!r} {reason}", setting="options", where=location, fix=fix)
    for bound in ("min", "max"):
        if getattr(option, bound) is not None and option.type not in _NUMBERS:
            raise ConfigError(
                f"applies only to int and float, but this option is of type {option.type}",
                setting=f"options.{name}.{bound}",
                received=getattr(option, bound),
                where=where(f"options.{name}.{bound}"),
                fix="remove it",
            )
    for number, choice in enumerate(option.choices):
        if not _is_of(option, choice):
            raise ConfigError(
                f"is not a value of type {option.type}",
                setting=f"options.{name}.choices.{number}",
                received=choice,
                where=where(f"options.{name}.choices"),
                fix=_suggest_fix(name, option, choice) or f"write {KINDS[option.type][0]}",
            )
    if option.min is not None and option.max is not None and not option.min <= option.max:
        raise ConfigError(
            f"is above max: {option.max:g}",
            setting=f"options.{name}.min",
            received=option.min,
            where=where(f"options.{name}.min"),
            fix="exchange min and max",
        )
    if option.default is not None:
        _check_value(name, option, option.default, where(_default(name)))


def _check_value(name: str, option: OptionSettings, value: Any, location: str | None) -> None:
    if not _fits(option, value):
        raise ConfigError(
            f"expected {describe_values(option)}{f' ({option.help})' if option.help else ''}",
            setting=name,
            received=value,
            where=location,
            fix=_suggest_fix(name, option, value),
        )


def _fits(option: OptionSettings, value: Any) -> bool:
    if not _is_of(option, value):
        return False
    if option.choices and value not in option.choices:
        return False
    if option.type not in _NUMBERS:
        return True
    number: Any = value  # nan is outside of all bounds
    return (option.min is None or number >= option.min) and (option.max is None or number <= option.max)


def _is_of(option: OptionSettings, value: Any) -> bool:
    _, kinds = KINDS[option.type]
    return isinstance(value, kinds) and (option.type == "bool" or not isinstance(value, bool))


def describe_values(option: OptionSettings) -> str:
    """Returns a description of an option's values: ``a whole number >= 1 and <= 512``."""
    if option.choices:
        return " or ".join(repr(choice) for choice in option.choices)
    bounds = [
        f" {sign} {limit:g}" for sign, limit in ((">=", option.min), ("<=", option.max)) if limit is not None
    ]
    return KINDS[option.type][0] + " and".join(bounds)


def _suggest_fix(name: str, option: OptionSettings, value: Any) -> str | None:
    texts = [choice for choice in option.choices if isinstance(choice, str)]
    if isinstance(value, str) and (meant := closest_match(value, texts)) is not None:
        return f"did you mean {meant!r}?"
    if option.type in _NUMBERS and isinstance(value, str) and (several := sweep_values(value)) is not None:
        return f"write one value; several are a sweep: `roost submit CONFIG {name}={several}`"
    if option.type == "int" and isinstance(value, float) and value.is_integer():
        return f"write {int(value)}"
    if option.type == "str" and isinstance(value, bool | int | float):
        return f"quote it, as in `{name}: '{value}'`"
    return None


def _refuse_missing(
    name: str, option: OptionSettings, values: Mapping[str, Any], known: Collection[str], where: Where
) -> None:
    others = [key for key in values if key not in known]
    meant = closest_match(name, others, max_distance=2) if len(name) > 3 else None
    if meant is not None:
        fix = f"{meant!r} is not an option; write {name}"
    else:
        help_suffix = f" ({option.help})" if option.help else ""
        fix = f"give {name}=..., {describe_values(option)}{help_suffix}"
    raise ConfigError(
        "has no default and no value",
        setting=name,
        where=where(meant) if meant is not None else where(f"options.{name}.type"),
        fix=fix,
    )
