"""Sections of a config as frozen structs: reading values, and listing keys, defaults and help.

A field named ``arguments`` takes every key of the section that the struct does not name.
"""

from __future__ import annotations

import collections.abc
import functools
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import NODEFAULT, Struct

from roost.base.errors import ConfigError
from roost.base.text.suggestions import closest_match
from roost.config import type_examples
from roost.config.other_tools import synonyms

Where = Callable[[str], str | None]
"""Returns where a dotted key was set, such as ``config.yaml:12``."""

S = TypeVar("S", bound=Struct)


_SectionForm = Literal["plain", "one", "named", "listed"]
"""The forms of a field: a plain value, one section, sections by name, or a list of sections."""


class _Field(NamedTuple):
    """The schema of one field of a section."""

    name: str
    kind: Any
    form: _SectionForm
    """The form of the first section in its type."""
    struct: type[Struct] | None
    optional: bool
    has_plain: bool
    """Whether the field also takes a value that is not a section, such as a text."""
    required: bool
    default: Any
    help: str | None
    fix: str | None
    """The fix for a value of the wrong type."""


@functools.cache
def fields(struct: type[Struct]) -> dict[str, _Field]:
    """Returns the fields of a struct by their keys in a config: its own, then those of its bases."""
    own = [name for one in struct.__mro__ for name in vars(one).get("__annotations__", {})]
    found = sorted(msgspec.structs.fields(struct), key=lambda info: own.index(info.name))
    return {info.encode_name: _field(info) for info in found if info.name != "arguments"}


def _takes_arguments(struct: type[Struct]) -> bool:
    return "arguments" in struct.__struct_fields__


def _field(info: Any) -> _Field:
    metas = getattr(info.type, "__metadata__", ())
    kind = get_args(info.type)[0] if metas else info.type
    help = next((meta.description for meta in metas if meta.description), None)
    fix = next((meta.extra["fix"] for meta in metas if meta.extra), None)
    default = info.default if info.default_factory is NODEFAULT else info.default_factory()
    members = [member for member in _members(kind) if member is not type(None)]
    plain: tuple[_SectionForm, None] = ("plain", None)
    form, struct = next(filter(None, map(_section_form, members)), plain)
    has_plain = _takes_plain(kind)
    optional = len(members) < len(_members(kind))
    return _Field(info.name, info.type, form, struct, optional, has_plain, info.required, default, help, fix)


def _section_form(kind: Any) -> tuple[_SectionForm, type[Struct]] | None:
    """Returns the form of the sections in a type, and their struct; None if it has no sections."""
    if isinstance(kind, type) and issubclass(kind, Struct):
        return "one", kind
    if get_origin(kind) not in (dict, list):
        return None
    inner = (member for member in _members(get_args(kind)[-1]))
    struct = next((one for one in inner if isinstance(one, type) and issubclass(one, Struct)), None)
    return None if struct is None else ("named" if get_origin(kind) is dict else "listed", struct)


def _takes_plain(kind: Any) -> bool:
    """Whether a type takes a value that is neither null nor a section."""
    return any(_section_form(member) is None for member in _members(kind) if member is not type(None))


def _members(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)


def _join(key: str, name: object) -> str:
    return f"{key}.{name}" if key else str(name)


def read_section(struct: type[S], values: Any, *, key: str = "", where: Where, is_open: bool = False) -> S:
    """Returns a section as its struct.

    Args:
        struct: The struct with the section's keys.
        values: The values of the section.
        key: The section's dotted key; empty for the whole config.
        where: Returns where a dotted key was set, for messages.
        is_open: Whether keys that the struct does not have are ignored, because they are the user's.

    Raises:
        ConfigError: A key is unknown or missing, or its value has the wrong type or range.
    """
    if not isinstance(values, Mapping):
        name = key.rpartition(".")[2]
        fix = f"write its keys below it, or `~{name}:` to remove that of an included file"
        raise ConfigError(
            "is a section",
            setting=key,
            received=values,
            where=where(key),
            fix=fix if values is None else "write its keys below it",
        )
    found = fields(struct)
    extra = {name: value for name, value in values.items() if name not in found}
    if extra and not is_open and not _takes_arguments(struct):
        _refuse_unknown(next(iter(extra)), key, found, where)
    made = {}
    for name, field in found.items():
        inner = _join(key, name)
        # `checkpoint:` with nothing below it is null in YAML and means the defaults.
        is_empty = values.get(name) is None and (field.form != "plain" or field.default == [])
        if name in values and not is_empty:
            made[field.name] = _value(field, values[name], inner, where)
        elif field.required:
            raise missing_key_error(inner, field.help, extra if is_open else (), where)
    if _takes_arguments(struct):
        _refuse_misspelled(extra, key, found, where)
        made["arguments"] = extra
    return struct(**made)


def missing_key_error(key: str, help: str | None, given: Iterable[str], where: Where) -> ConfigError:
    """Returns the error for a required key that a section lacks.

    Args:
        key: The dotted key.
        help: What it is.
        given: The keys beside it that nothing is known of: it may be one of them, misspelled.
        where: Returns where a dotted key was set.
    """
    section, _, name = key.rpartition(".")
    if (meant := closest_match(name, given, max_distance=2)) is not None:
        return ConfigError(
            "is missing", setting=key, where=where(_join(section, meant)), fix=f"is it {meant!r}, misspelled?"
        )
    return ConfigError("is missing", setting=key, where=where(section), fix=f"set it: {help}")


def _refuse_misspelled(arguments: Iterable[str], key: str, known: Iterable[str], where: Where) -> None:
    """Refuses arguments of the class that are nearly names of settings. Short names are not compared: an
    argument may well have a similar one."""
    long = [name for name in known if len(name) > 8]
    for name in arguments:
        if (meant := closest_match(name, long, max_distance=2)) is not None:
            raise ConfigError(
                f"{key} has no setting {name!r}",
                where=where(_join(key, name)),
                fix=f"did you mean {meant!r}?",
            )


def _value(field: _Field, value: Any, key: str, where: Where) -> Any:
    kind = get_args(field.kind)[0] if hasattr(field.kind, "__metadata__") else field.kind
    found = [(member, _section_form(member)) for member in _members(kind)]
    for member, form in found:
        if form is not None and isinstance(value, _FORM_TYPES[form[0]]):
            return _sections(member, *form, value, key, where)
    if field.struct is None or field.has_plain:
        return _plain(field, value, key, where)
    if field.form == "one":
        return read_section(field.struct, value, key=key, where=where)  # raises the error
    fix = _FORM_FIXES[field.form]
    raise ConfigError(
        f"expected {describe_type(field.kind)}", setting=key, received=value, where=where(key), fix=fix
    )


_FORM_TYPES: dict[_SectionForm, type] = {"one": Mapping, "named": dict, "listed": list}


def _sections(kind: Any, form: _SectionForm, struct: type[Struct], value: Any, key: str, where: Where) -> Any:
    """Reads a section, or several sections by name or in a list."""
    if form == "one":
        return read_section(struct, value, key=key, where=where)
    inner = get_args(kind)[-1]
    has_plain = _takes_plain(inner)
    items = value.items() if isinstance(value, dict) else enumerate(value)
    made = {}
    for name, item in items:
        if has_plain and not isinstance(item, Mapping):
            field = _Field(str(name), inner, "plain", None, False, True, True, None, None, None)
            made[name] = _plain(field, item, _join(key, name), where)
        else:
            made[name] = read_section(struct, item, key=_join(key, name), where=where)
    return made if form == "named" else list(made.values())


def _plain(field: _Field, value: Any, key: str, where: Where) -> Any:
    # `max_steps: 1e6` is a float in YAML, but clearly means an integer.
    is_whole = isinstance(value, float) and value.is_integer()
    for candidate in (value, int(value)) if is_whole else (value,):
        try:
            return msgspec.convert(candidate, field.kind)
        except msgspec.ValidationError:
            continue
    meant = synonyms.find_choice(value, _choices(field.kind))
    fix = field.fix or type_examples.suggest_value(field.kind, field.default, value, key=key)
    if meant is not None:
        fix = f"did you mean {meant!r}?"
    raise ConfigError(
        f"expected {describe_type(field.kind)}", setting=key, received=value, where=where(key), fix=fix
    )


def _choices(kind: Any) -> tuple[Any, ...]:
    """Returns the literal values of a type."""
    if get_origin(kind) is Literal:
        return get_args(kind)
    is_made_of = hasattr(kind, "__metadata__") or get_origin(kind) in (Union, types.UnionType)
    return tuple(one for inner in get_args(kind) for one in _choices(inner)) if is_made_of else ()


_FORM_FIXES = {
    "named": "write a name, and its keys below it",
    "listed": "write a list of sections",
}
_FORM_NAMES = {"one": "a section", "named": "names, each with a section", "listed": "a list of sections"}


_NAMES: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    str: "a text",
    bool: "true or false",
    type(None): "null",
    Any: "anything",
}


def describe_type(kind: Any) -> str:
    """Returns a description of a type for messages: ``a number or null``, ``a list, each a whole number``."""
    if metas := getattr(kind, "__metadata__", ()):
        signs = {"ge": " >=", "gt": " >", "le": " <=", "lt": " <", "min_length": ", at least"}
        bounds = [f"{sign} {limit}" for meta in metas for name, sign in signs.items()
                  if (limit := getattr(meta, name)) is not None]  # fmt: skip
        return describe_type(get_args(kind)[0]) + " and".join(bounds)
    origin, inner = get_origin(kind), get_args(kind)
    if (form := _section_form(kind)) is not None and not (inner and _takes_plain(inner[-1])):
        return _FORM_NAMES[form[0]]
    if origin is Literal:
        return " or ".join(repr(choice) for choice in inner)
    if origin is dict:
        return "a section" if inner[1] is Any else f"names, each with {describe_type(inner[1])}"
    if origin is tuple and Ellipsis not in inner:
        return f"a list of {len(inner)}: {', '.join(map(describe_type, inner))}"
    if origin in (list, tuple, collections.abc.Iterable, collections.abc.Sequence):
        return "a list" if inner[0] is Any else f"a list, each {describe_type(inner[0])}"
    if origin is collections.abc.Callable:
        return "a function (Schedules.py:NAME)"
    if origin in (Union, types.UnionType):
        # A config cannot give values that are not of a builtin type, such as tensors.
        plain = [one for one in inner if one in _NAMES or _section_form(one) or get_origin(one) is not None]
        return " or ".join(dict.fromkeys(map(describe_type, plain or inner)))
    return _NAMES.get(kind, getattr(kind, "__name__", str(kind)))


def _refuse_unknown(name: str, key: str, known: Mapping[str, Any], where: Where) -> None:
    raise ConfigError(
        f"{key} has no setting {name!r}",
        where=where(_join(key, name)),
        fix=f"{synonyms.did_you_mean(name, known)}the settings are {', '.join(known)}",
    )


def known_keys(struct: type[Struct], values: Any, *, key: str = "") -> Iterator[str]:
    """Yields every dotted key of a struct, with the names that ``values`` has (for example of optimizers)."""
    given = values if isinstance(values, Mapping) else {}
    for name, field in fields(struct).items():
        inner, value = _join(key, name), given.get(name)
        yield inner
        if field.struct is not None and field.form == "one":
            yield from known_keys(field.struct, value, key=inner)
        elif field.struct is not None and field.form == "named" and isinstance(value, Mapping):
            for own in value:
                yield _join(inner, own)
                yield from known_keys(field.struct, value[own], key=_join(inner, own))


def defaults(struct: type[Struct], values: Any) -> dict[str, Any]:
    """Returns the defaults of the settings that ``values`` may leave out, without empty ones.

    An optional section has defaults only if ``values`` has that section.
    """
    made: dict[str, Any] = {}
    given = values if isinstance(values, Mapping) else {}
    for name, field in fields(struct).items():
        value = given.get(name)
        if field.struct is None:
            made[name] = None if field.required else field.default
        elif field.form == "one" and (isinstance(value, Mapping) or not (field.optional or field.has_plain)):
            made[name] = defaults(field.struct, value)
        elif field.form == "named" and isinstance(value, Mapping):
            made[name] = {own: defaults(field.struct, item) for own, item in value.items()}
    return {name: value for name, value in made.items() if value is not None and value not in ([], {})}


def describe(root: type[Struct], key: str) -> str | None:
    """Returns one line of help for a dotted key; None if the struct does not have the key."""
    return _help_and_values(root, key)[0]


def allowed_values(root: type[Struct], key: str) -> str | None:
    """Returns a description of the values of a dotted key; None if the struct does not have the key."""
    return _help_and_values(root, key)[1]


def accepts(root: type[Struct], key: str, value: Any) -> bool:
    """Whether a dotted key can have a single value, and this one by its type. An argument of a class can have
    every value."""
    field, is_argument = _find_field(root, key)
    if field is None or is_section(root, key):
        return is_argument
    try:
        _plain(field, value, key, lambda key: None)
    except ConfigError:
        return False
    return True


def is_section(root: type[Struct], key: str) -> bool:
    """Whether a dotted key is a section, or names sections, and cannot have a single value."""
    field, _ = _find_field(root, key)
    return field is not None and field.struct is not None and not field.has_plain


def may_have(root: type[Struct], key: str) -> bool:
    """Whether a struct has a dotted key, or the section of the key takes arguments of a class."""
    field, is_argument = _find_field(root, key)
    return field is not None or is_argument


def _find_field(root: type[Struct], key: str) -> tuple[_Field | None, bool]:
    """Returns the field of a dotted key, and whether the key is an argument of a class; those have none."""
    struct: type[Struct] | None = root
    field = None
    names = [name for name in key.split(".") if not name.isdigit()]
    while names:
        field = fields(struct).get(names.pop(0)) if struct is not None else None
        if field is None:
            return None, struct is not None and _takes_arguments(struct)
        struct = field.struct
        if field.form == "named" and names:
            names.pop(0)
    return field, False


def _help_and_values(root: type[Struct], key: str) -> tuple[str | None, str | None]:
    """Returns the help of a dotted key, and a description of its values."""
    struct: type[Struct] | None = root
    text = values = None
    names = [name for name in key.split(".") if not name.isdigit()]
    while names:
        field = fields(struct).get(names.pop(0)) if struct is not None else None
        if field is None:
            is_argument = struct is not None and _takes_arguments(struct)
            return ("an argument of the class" if is_argument else None), None
        struct, text, values = field.struct, field.help, describe_type(field.kind)
        if field.form == "named" and names:
            names.pop(0)
            values = _FORM_NAMES["one"]
    return text, values
