"""Overrides of a command line: ``a.b=c`` sets a key, ``+a.b=c`` adds one, ``~a.b`` removes one.

An override is checked against the values to which it is applied: a misspelled key is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from roost.base.config_files import MAX_DEPTH, parse_scalar
from roost.base.errors import ConfigError
from roost.base.text.suggestions import did_you_mean
from roost.config import settings, user_options
from roost.config.dlnest import child_files, dlnest_settings
from roost.config.other_tools import foreign_keys, synonyms
from roost.config.run_settings import Contract
from roost.config.values.nested_values import (
    ABSENT,
    Key,
    Values,
    dotted_keys,
    has_nul,
    merge,
    nested,
    value_at,
    without,
)

COMMAND_LINE = "command line"
"""The origin of a setting that an override set."""

_LIST_ENTRY = re.compile(r"\[\d+\]|\.\d+(?=\.|$)")
"""An entry of a list in a dotted key, which an override cannot name."""


@dataclass(frozen=True)
class Override:
    """A value for one key, or the removal of the key."""

    path: Key
    value: Any
    """`ABSENT`: the key is removed."""


def apply_overrides(
    values: Mapping[str, Any], overrides: Iterable[str], contract: Contract = Contract.NATIVE
) -> Values:
    """Returns new values with the overrides of a command line applied in their order.

    Args:
        values: All settings, of a config of ``contract``.
        overrides: As typed: ``a.b=c``, ``+a.b=c`` or ``~a.b``.
        contract: Which of the keys are roost's.

    Raises:
        ConfigError: An override is not valid.
    """
    applied = dict(values)
    for text in overrides:
        one = parse_override(text, applied, contract)
        if one.value is ABSENT:
            applied = without(applied, one.path)
        else:
            applied = merge(applied, nested(one.path, one.value))
    return applied


def parse_override(text: str, values: Values, contract: Contract) -> Override:
    """Parses an override and checks it against the values to which it is applied.

    Raises:
        ConfigError: It is not an override, or not valid for these values.
    """
    sign = text[:1] if text[:1] in ("+", "~") else ""
    key, equals, value = text.removeprefix(sign).partition("=")
    path = tuple(key.strip().split("."))
    if bool(equals) == (sign == "~") or key.startswith(("+", "~")):
        if text.startswith("++") and equals:
            _refuse_hydra_sign(text, values, contract)
        raise ConfigError(
            "this argument is not an override",
            received=text,
            where=COMMAND_LINE,
            fix="write a.b=c, +a.b=c (add) or ~a.b (remove)",
        )
    if contract is Contract.NATIVE:
        path = _native_path(path, values)
    _check_path(path, text)
    if contract is Contract.DLNEST:
        _check_user_key(path, values, sign, text)
    else:
        _check_native_key(path, values, sign, text)
    _check_sections(path, values)
    if sign == "~":
        return Override(path, ABSENT)
    made = _parse_value(value, key)
    _check_colons(made, key, text)
    if contract is Contract.NATIVE:
        _check_replaced_section(path, values, made)
        if not sign:
            _check_added_keys(path, made, values)
    return Override(path, made)


def new_key_notes(text: str, values: Values) -> list[str]:
    """Returns a note if an override sets a key of the user's that no file has: it may be misspelled."""
    key, equals, _ = text.partition("=")
    path = tuple(key.split("."))
    is_roosts = path[0] == dlnest_settings.SECTION
    if not equals or key.startswith("+") or is_roosts or value_at(values, path) is not ABSENT:
        return []
    near = did_you_mean(key, dotted_keys(values)).strip()
    return [f"{key} is a new key, which no file of the config has{f'; {near}' if near else ''}"]


def _check_colons(value: Any, key: str, text: str) -> None:
    """Refuses ``{lr:0.1}``, in which YAML sees the key ``lr:0.1`` without a value."""
    if isinstance(value, list):
        for one in value:
            _check_colons(one, key, text)
    for name, inner in value.items() if isinstance(value, Mapping) else ():
        if inner is None and ":" in name:
            first, _, rest = name.partition(":")
            raise ConfigError(
                f"the mapping has the key {name!r} and no value for it",
                setting=key,
                received=text,
                where=COMMAND_LINE,
                fix=f"write a space after the colon, and quotes: '{{{first}: {rest.strip()}}}'",
            )
        _check_colons(inner, key, text)


def _check_added_keys(path: Key, value: Any, values: Values) -> None:
    """Refuses the keys that a mapping adds to a section if an override of each one would be refused."""
    section = value_at(values, path)
    if not isinstance(value, Mapping) or not isinstance(section, Mapping) or not section:
        return
    for name, inner in value.items():
        if name in section:
            _check_added_keys((*path, name), inner, values)
        else:
            written = json.dumps(inner, ensure_ascii=False)
            _check_native_key((*path, name), values, "", f"={written}")


def _native_path(path: Key, values: Values) -> Key:
    """Returns the path of an override in a native config, in which ``roost.x`` is ``x``: so an override of
    roost's settings is the same for both contracts. Not if the user has a key ``roost``."""
    is_own = len(path) > 1 and path[0] == dlnest_settings.SECTION and path[0] not in values
    return path[1:] if is_own else path


def _parse_value(text: str, key: str) -> Any:
    try:
        value = parse_scalar(text)
        if has_nul(value):
            raise ConfigError("a text contains NUL")
        return value
    except ConfigError as error:
        fix = "quote the text, or close its bracket"
        raise ConfigError(error.message, setting=key, received=text, where=COMMAND_LINE, fix=fix) from None


def _check_path(path: Key, text: str) -> None:
    for name in path:
        if not name.strip() or name.startswith("__") or len(path) > MAX_DEPTH:
            raise ConfigError("is not a dotted key", received=text, fix="write names joined by single dots")


def _check_native_key(path: Key, values: Values, sign: str, text: str) -> None:
    if path[0] == "include":
        raise ConfigError("include is allowed only in files", received=text, fix="give a tuning file")
    if path[0] == "project":
        raise ConfigError("project is allowed only in files", received=text, fix="use --project DIR")
    is_misspelled = path[0] not in user_options.names(values) and _setting_meant(path[0]) is not None
    if (sign != "+" or is_misspelled) and value_at(values, path) is ABSENT:
        _refuse_unknown(".".join(path), values, sign, text.partition("=")[2])


def _check_user_key(path: Key, values: Values, sign: str, text: str) -> None:
    """Checks an override of a config of DLNest's contract, where every key may be set: it is the
    user's, except in the section ``roost``."""
    key, is_set = ".".join(path), value_at(values, path) is not ABSENT
    if path[0] == child_files.CHILDREN:
        fix = "give a tuning file, which may have it"
        raise ConfigError(f"{path[0]} is allowed only in files", received=text, fix=fix)
    if path[0] == dlnest_settings.SECTION and not is_set:
        dlnest_settings.refuse_unknown(key, values)
    elif sign == "~" and not is_set:
        raise ConfigError(
            f"there is no key {key!r} to remove",
            where=COMMAND_LINE,
            fix=did_you_mean(key, dotted_keys(values)).strip() or "leave it out",
        )


def _check_sections(path: Key, values: Values) -> None:
    for length in range(1, len(path)):
        around = value_at(values, path[:length])
        if around is not ABSENT and around is not None and not isinstance(around, Mapping):
            outer = ".".join(path[:length])
            fix = "replace the whole list" if isinstance(around, list) else f"remove it first: ~{outer}"
            raise ConfigError("is not a section", setting=outer, received=around, where=COMMAND_LINE, fix=fix)


def _check_replaced_section(path: Key, values: Values, value: Any) -> None:
    """Refuses a text or number for a section of the user's own, whose keys the code reads: in Hydra it would
    select a file. The settings' own sections are checked by their types."""
    section = value_at(values, path)
    is_single = isinstance(value, str | int | float) and not isinstance(value, bool)
    is_reference = isinstance(value, str) and value.startswith("${")
    if path[0] in settings.setting_names() or not isinstance(section, Mapping) or not section:
        return
    if is_single and not is_reference:
        key, first = ".".join(path), next(iter(section))
        fix = f"set one of its keys, as {key}.{first}=..., or remove it first: ~{key} +{key}={value}"
        raise ConfigError("is a section", setting=key, received=value, where=COMMAND_LINE, fix=fix)


def _refuse_hydra_sign(text: str, values: Values, contract: Contract) -> None:
    """Raises a ConfigError for ``++a.b=c``, which sets a key in Hydra whether it exists or not."""
    parse_override(text.removeprefix("++"), values, contract)  # raises the error of a key that does not exist
    raise ConfigError(
        "this argument is not an override",
        received=text,
        where=COMMAND_LINE,
        fix=f"write {text.removeprefix('++')}: the key exists",
    )


def _setting_meant(first: str) -> str | None:
    """Returns the setting of which a key at the top is a misspelling, so that it cannot be the user's own."""
    names = settings.setting_names()
    return None if first in names else settings.near_miss(first, names)


_NAMED_SECTIONS = {
    "optimizer": "optimizers",
    "optim": "optimizers",
    "optimizers": "optimizers",
    "averages": "averages",
}
"""Sections whose keys are below names, with what they are called elsewhere."""


def _in_named_sections(key: str, candidates: Sequence[str], values: Values) -> list[str]:
    """Returns the keys meant by one without the name between section and key: ``optimizers.main.lr`` for
    ``optimizer.lr``; those that do not exist with the sign that adds them."""
    first, _, rest = key.partition(".")
    section = _NAMED_SECTIONS.get(first, "")
    names = values.get(section)
    if not isinstance(names, Mapping) or not rest or rest.partition(".")[0] in names:
        return []
    full = [f"{section}.{name}.{rest}" for name in names]
    full = [key if key in candidates else synonyms.optimizer_argument(key) or key for key in full]
    existing = [key for key in full if key in candidates]
    return (existing or ([] if "." in rest else [f"+{key}" for key in full]))[:3]


def _known_beside(key: str, named: Sequence[str]) -> str:
    """Returns the settings of the section around an unknown key, as a fix."""
    section = key.rpartition(".")[0]
    beside = [one.rpartition(".")[2] for one in named if one.rpartition(".")[0] == section]
    return f"the settings of {section} are {', '.join(beside)}" if beside else "remove it"


def _refuse_unknown(key: str, values: Values, sign: str, value: str) -> None:
    named = [] if sign == "~" else [*settings.known_keys(values), *user_options.names(values)]
    if key in named:
        return
    if sign != "~" and (error := foreign_keys.override_error(key, _parse_value(value, key), values)):
        raise error
    candidates = list(dict.fromkeys([*named, *dotted_keys(values)]))
    near, add = synonyms.did_you_mean(key, candidates), f"use +{key}={value} to add it"
    first, dot, rest = key.partition(".")
    if not settings.may_have(key):
        add = "" if near else _known_beside(key, named)
    if (similar := _setting_meant(first)) is not None:
        add = ""  # a key so similar to a setting is refused
        if similar + dot + rest in candidates:
            near = f"did you mean {similar + dot + rest!r}? "
    if sign != "~" and (inner := _in_named_sections(key, candidates, values)):
        near, add = f"did you mean {' or '.join(f'{one}={value}' for one in inner)}? ", ""
    if (entry := _LIST_ENTRY.search(key)) is not None:
        near, add = "", f"replace the whole list, as in '{key[: entry.start()]}=[...]'"
    if (meant := synonyms.optimizer_argument(key)) is not None and meant not in candidates:
        near, add = "", f"use +{meant}={value}"
    elif key.startswith("optimizers.") and synonyms.find_setting(key, candidates) is not None:
        add = ""  # a synonym of a setting is not an argument of the optimizer
    use = "" if sign == "~" else add
    raise ConfigError(
        f"there is no setting {key!r}",
        where=COMMAND_LINE,
        fix=(near + use).strip() or None,
    )
