"""Checks of a config's arguments against the signature of a class or function: names, types, and which
argument a library rejects."""

from __future__ import annotations

import collections.abc
import inspect
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

from roost.base.errors import ConfigError
from roost.config.other_tools import synonyms
from roost.config.section_schema import describe_type

Target = Callable[..., Any]


class SpecLocation(NamedTuple):
    """The setting and location of a spec, for messages."""

    setting: str | None
    where: Callable[[str], object]

    def error_context(self, name: str | None = None) -> dict[str, Any]:
        """Returns ``setting`` and ``where`` of the spec, or of one of its keys, as arguments of a
        `ConfigError`."""
        key = ".".join(filter(None, (self.setting, name))) or None
        return {"setting": key, "where": self.where(key) if key is not None else None}


def accepts(target: Target, name: str) -> bool:
    """Whether a class or function has an argument of that name."""
    signature = _signature(target)
    return signature is not None and name in _named_parameters(signature)


def rejects(target: Target, name: str) -> bool:
    """Whether a class or function certainly has no argument of that name."""
    signature = _signature(target)
    return (
        signature is not None
        and name not in _named_parameters(signature)
        and not _takes_any_keyword(signature)
    )


def describe_arguments(target: Target) -> str | None:
    """Returns ``its arguments: a, b=1``; None if Python does not know the signature."""
    signature = _signature(target)
    return _describe_signature(signature) if signature is not None else None


def check_names(
    path: str, target: Target, given: Mapping[str, Any], runtime: Mapping[str, Any], location: SpecLocation
) -> None:
    """Checks that the class or function takes every argument, and that no required one is missing.

    Args:
        path: The path of ``target`` in the config.
        target: A class or a function.
        given: Arguments from the config.
        runtime: Arguments from roost.
        location: The location of the spec.

    Raises:
        ConfigError: An argument is unknown or missing; the text has its name and the signature.
    """
    signature = _signature(target)
    if signature is None:
        return
    named, is_open = _named_parameters(signature), _takes_any_keyword(signature)
    shape, spread = _describe_signature(signature), _var_positional(signature)
    for name in given:
        if name == spread:
            _check_var_positional(path, signature, {**given, **runtime}, location)
        elif name not in named and not is_open:
            raise ConfigError(
                f"{path} takes no argument {name!r}",
                received=given[name],
                **location.error_context(name),
                fix=synonyms.did_you_mean(name, named) + shape,
            )
    for name in runtime:
        if name not in named and not is_open:
            raise ConfigError(
                f"{path} takes no {name!r}, which roost passes", **location.error_context("class"), fix=shape
            )
    for name, one in named.items():
        if one.default is inspect.Parameter.empty and name not in given and name not in runtime:
            at = location.error_context("class")
            raise ConfigError(f"{path} needs the argument {name!r}", **at, fix=f"add it; {shape}")


def call(target: Target, given: Mapping[str, Any], runtime: Mapping[str, Any]) -> Any:
    """Calls a class or function with arguments by name; a list under the name of its ``*args`` is
    unpacked."""
    signature = _signature(target)
    spread = _var_positional(signature) if signature is not None else None
    if signature is None or spread is None or spread not in given:
        return target(**given, **runtime)
    rest = {**given, **runtime}
    items = rest.pop(spread)
    return target(
        *(rest.pop(name) for name in _before_var_positional(signature) if name in rest), *items, **rest
    )


def check_inputs(
    path: str, target: Target, given: Mapping[str, Any], inputs: int, location: SpecLocation, setting: str
) -> None:
    """Checks that a function can be called with ``inputs`` positional values and the config's arguments by
    name.

    Args:
        path: The path of the function in the config.
        target: The function.
        given: Arguments by name.
        inputs: The number of positional values.
        location: The location of the spec.
        setting: The setting that determines the number.

    Raises:
        ConfigError: The function cannot be called so; the text has its signature.
    """
    signature = _signature(target)
    if signature is None:
        return
    named = _named_parameters(signature)
    for name in given:
        if name not in named and not _takes_any_keyword(signature):
            raise ConfigError(
                f"{path} takes no argument {name!r}",
                received=given[name],
                **location.error_context(name),
                fix=synonyms.did_you_mean(name, named) + _describe_signature(signature),
            )
    try:
        signature.bind(*[None] * inputs, **given)
    except TypeError as error:
        raise ConfigError(
            f"{path} cannot be called with {inputs} input{'s' * (inputs != 1)}: {error}",
            setting=setting,
            where=location.where(setting),
            fix=_describe_signature(signature),
        ) from None


def _var_positional(signature: inspect.Signature) -> str | None:
    """Returns the name of ``*args``; None if the signature has none."""
    kinds = {one.kind: name for name, one in signature.parameters.items()}
    return kinds.get(inspect.Parameter.VAR_POSITIONAL)


def _before_var_positional(signature: inspect.Signature) -> list[str]:
    """Returns the arguments before ``*args``, which must be given by position."""
    by_place = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return [name for name, one in signature.parameters.items() if one.kind is by_place]


def _check_var_positional(
    path: str, signature: inspect.Signature, given: Mapping[str, Any], location: SpecLocation
) -> None:
    spread = _var_positional(signature)
    assert spread is not None
    if not isinstance(given[spread], list):
        raise ConfigError(
            f"{path} takes any number of {spread!r}: expected a list",
            received=given[spread],
            **location.error_context(spread),
            fix=_describe_signature(signature),
        )
    for name in _before_var_positional(signature):
        if name not in given:
            raise ConfigError(
                f"{path} takes {name!r} before its {spread!r}",
                **location.error_context(spread),
                fix=f"add {name}",
            )


_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def _signature(target: Target) -> inspect.Signature | None:
    try:
        return inspect.signature(target)
    except ValueError:  # written in C, without a signature
        return None


def _named_parameters(signature: inspect.Signature) -> dict[str, inspect.Parameter]:
    return {name: one for name, one in signature.parameters.items() if one.kind in _BY_NAME}


def _takes_any_keyword(signature: inspect.Signature) -> bool:
    return any(one.kind is inspect.Parameter.VAR_KEYWORD for one in signature.parameters.values())


def _describe_signature(signature: inspect.Signature) -> str:
    bare = [one.replace(annotation=inspect.Parameter.empty) for one in signature.parameters.values()]
    return f"its arguments: {str(inspect.Signature(bare))[1:-1] or 'none'}"


# --- types ----------------------------------------------------------------------------------------------


def convert_types(target: Target, given: Mapping[str, Any], location: SpecLocation) -> dict[str, Any]:
    """Returns the arguments converted to the types of a library's annotations: lists to tuples, 1e3 to an
    integer.

    Python does not check annotations, so `step_size: "3"` would fail in the middle of the run, and
    `amsgrad: "no"` never.

    Raises:
        ConfigError: A value has another type; the text has the argument and the signature.
    """
    signature, hints = _signature(target), _hints(target)
    if signature is None:
        return dict(given)
    named, found = _named_parameters(signature), {}
    for name, value in given.items():
        found[name] = value
        if name not in hints or name not in named or value is named[name].default:
            continue
        try:
            found[name] = _convert(value, hints[name])
        except TypeError:
            raise ConfigError(
                f"expected {describe_type(hints[name])}",
                received=value,
                **location.error_context(name),
                fix=f"{_quotes_hint(value)}{_describe_signature(signature)}",
            ) from None
    return found


def _quotes_hint(value: object) -> str:
    try:
        float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return ""
    return f"write {value} without quotes; " if isinstance(value, str) else ""


def _hints(target: Target) -> dict[str, Any]:
    function = target.__init__ if inspect.isclass(target) else target
    # Torch imports these only for the type checker.
    names = {name: getattr(collections.abc, name) for name in ("Callable", "Iterable", "Sequence")}
    try:
        return typing.get_type_hints(function, localns=names)
    except (NameError, TypeError, AttributeError, SyntaxError):  # annotations that only a type checker knows
        return {}


def _convert(value: Any, kind: Any) -> Any:
    """Converts a value to the type of an annotation; annotations that are not builtin types are ignored.

    Raises:
        TypeError: The value certainly has another type.
    """
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _convert_union(value, inner)
    if origin is Literal:
        good = value in inner
    elif kind is None or kind is types.NoneType:
        good = value is None
    elif kind in (int, float):
        return _convert_number(value, kind)
    elif origin is tuple:
        return _convert_tuple(value, inner)
    elif origin in (list, collections.abc.Iterable, collections.abc.Sequence):
        return [_convert(one, inner[0]) for one in _items(value)]
    elif origin is collections.abc.Callable:
        good = callable(value)
    else:
        good = kind is Any or not inspect.isclass(kind) or isinstance(value, kind)
    if not good:
        raise TypeError
    return value


def _convert_union(value: Any, kinds: tuple[Any, ...]) -> Any:
    found = []
    for kind in kinds:
        try:
            found.append(_convert(value, kind))
        except TypeError:
            continue
    if not found:
        raise TypeError
    # `int | float` leaves 2.0 a float.
    return next((one for one in found if type(one) is type(value)), found[0])


def _convert_number(value: Any, kind: type) -> Any:
    if isinstance(value, list):  # one number for each group, although the annotation does not say so
        return [_convert_number(one, kind) for one in value]
    is_whole = isinstance(value, float) and value.is_integer()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError
    if kind is int and isinstance(value, float):
        if not is_whole:
            raise TypeError
        return int(value)  # `T_max: 1e4` is a float in YAML, but clearly means an integer
    return value


def _convert_tuple(value: Any, kinds: tuple[Any, ...]) -> tuple[Any, ...]:
    items = _items(value)
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        kinds = (kinds[0],) * len(items)
    if len(items) != len(kinds):
        raise TypeError
    return tuple(_convert(one, kind) for one, kind in zip(items, kinds, strict=True))


def _items(value: Any) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise TypeError
    return list(value)


# --- the argument at fault ------------------------------------------------------------------------------


def find_bad_argument(spec: Mapping[str, Any], attempt: Callable[[dict[str, Any]], object]) -> str | None:
    """Returns the one argument of a spec without which, or with 1 as its value, ``attempt`` succeeds; None if
    there is no such argument, or several. Needed because a library that rejects a value does not name the
    argument."""
    names = [name for name in spec if name != "class"]
    bad = [name for name in names if any(_succeeds(attempt, other) for other in _variations(spec, name))]
    candidates = names if len(names) == 1 else bad
    return candidates[0] if len(candidates) == 1 else None


def _variations(spec: Mapping[str, Any], name: str) -> Iterator[dict[str, Any]]:
    yield {other: value for other, value in spec.items() if other != name}
    if isinstance(spec[name], int | float):
        yield {**spec, name: 1}


def _succeeds(attempt: Callable[[dict[str, Any]], object], spec: dict[str, Any]) -> bool:
    try:
        attempt(spec)
    except Exception:  # noqa: BLE001  - any error: this is not the argument at fault
        return False
    return True
