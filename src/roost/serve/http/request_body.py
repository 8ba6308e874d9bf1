"""Strict parsing of bodies and queries: input that two parsers could understand differently is refused."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Sequence
from typing import Any, Literal, NoReturn, TypeVar, get_args, get_origin, get_type_hints
from urllib.parse import parse_qsl

import msgspec

from roost.base.text.suggestions import did_you_mean
from roost.serve.http.error_response import HttpError

T = TypeVar("T")

MAX_DEPTH = 64
_MAX_DIGITS = 32
_INTEGER = re.compile(r"-?[0-9]{1,20}")
_FIELD_IN_MESSAGE = re.compile(r"(unknown|required) field `([^`]*)`")
_PATTERN_MESSAGE = "matching regex"
_PATTERN_PROBLEMS = {
    "run": ("is not the id of a run", "take one from GET /api/v1/runs"),
    "cursor": (
        "is not a cursor",
        "give the id of a stream event, as cursor or Last-Event-ID, or leave it out",
    ),
}
"""The message and the fix for each parameter with a pattern."""
_FIXES = {
    "command": 'give the program and its arguments, each a string: ["python", "train.py", "--epochs", "3"]'
}
"""The fix of a wrong value, where an example says more than the type."""
_JSON_TYPE_NAMES = {list: "an array", str: "a string", bool: "true or false", type(None): "null"}


def parse_json_object(data: bytes) -> dict[str, Any]:
    """Returns the JSON object of a body.

    Raises:
        HttpError: 400; the body is not a JSON object, or parsers could disagree about it.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise _malformed("the body is not UTF-8") from None
    try:
        found = json.loads(
            text,
            object_pairs_hook=_object_of_unique_keys,
            parse_constant=_refuse_constant,
            parse_int=_parse_int,
            parse_float=_parse_float,
        )
    except RecursionError:
        raise _malformed(f"the body is nested more than {MAX_DEPTH} deep") from None
    except ValueError as error:
        raise _malformed(f"the body is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise _malformed(f"the body is {_JSON_TYPE_NAMES.get(type(found), 'a number')}, not a JSON object")
    _check_value(found, 1)
    return found


def convert_parameters(
    kind: type[T], given: dict[str, Any], *, strict: bool, path_parameters: Collection[str] = ()
) -> T:
    """Returns the parameters as a checked struct.

    Args:
        kind: The type of the struct.
        given: The parameters.
        strict: False if all of them are text.
        path_parameters: The parameters that are in the path.

    Raises:
        HttpError: 422; a parameter is unknown, missing, or of another type; the error names it.
    """
    try:
        return msgspec.convert(given, kind, strict=strict)
    except msgspec.ValidationError as error:
        what, _, path = str(error).partition(" - at `$")
        named = _FIELD_IN_MESSAGE.search(what)
        field = path.rstrip("`").lstrip(".") or (named.group(2) if named else None)
        fix: str | None
        if named is not None and named[1] == "unknown":
            what, fix = _unknown_parameter(
                named[2], [name for name in _field_names(kind) if name not in path_parameters]
            )
        elif named is not None:
            what, fix = "is missing", _FIXES.get(named[2])
        else:
            what, fix = _describe_problem(what, (field or "").partition("[")[0], kind)
        raise HttpError(422, "invalid", what, field=field, fix=fix) from None


def _unknown_parameter(name: str, known: Sequence[str]) -> tuple[str, str]:
    fix = f"this route takes {', '.join(known)}" if known else "leave it out; this route takes none"
    return "there is no such parameter", did_you_mean(name, known) + fix


def _field_names(kind: Any) -> list[str]:
    return [one.name for one in msgspec.structs.fields(kind)]


def _describe_problem(what: str, name: str, kind: Any) -> tuple[str, str | None]:
    """Returns what is wrong with a parameter, and a fix where the message does not imply it."""
    if _PATTERN_MESSAGE in what and name in _PATTERN_PROBLEMS:
        return _PATTERN_PROBLEMS[name]
    if re.fullmatch(r"Expected `(array|str)` of length >= 1", what):
        return "is empty", _FIXES.get(name)
    if name in _FIXES:
        return what, _FIXES[name]
    if what.startswith("Expected `array`"):
        return what, "give a list, even for one value"
    hint = get_type_hints(kind, include_extras=True).get(name)
    if not (words := _literal_values(hint)):
        return what, None
    return what, f"write {'a whole number, or' if _allows_integer(hint) else 'one of'} {', '.join(words)}"


def _allows_integer(hint: Any) -> bool:
    return hint is int or any(map(_allows_integer, get_args(hint)))


def _literal_values(hint: Any) -> list[str]:
    """Returns the allowed words of a field."""
    if get_origin(hint) is Literal:
        return list(get_args(hint))
    return [word for one in get_args(hint) for word in _literal_values(one)]


def parse_query(text: bytes) -> list[tuple[str, str]]:
    """Returns the names and values of a query, in its order.

    Raises:
        HttpError: 400; the query is not UTF-8, or not percent-encoded.
    """
    try:
        return parse_qsl(text.decode("ascii"), keep_blank_values=True, errors="strict")
    except ValueError:
        raise _malformed("the query is not percent-encoded UTF-8") from None


def query_parameters(pairs: Sequence[tuple[str, str]], list_names: frozenset[str]) -> dict[str, Any]:
    """Returns the parameters of a query.

    Args:
        pairs: The names and values.
        list_names: The parameters that may be repeated; their values are lists.

    Raises:
        HttpError: 400; another parameter is repeated.
    """
    found: dict[str, Any] = {}
    for name, value in pairs:
        _check_value(name, 1)
        _check_value(value, 1)
        if name in list_names:
            found.setdefault(name, []).append(value)
        elif name in found:
            raise HttpError(400, "malformed", "is given more than once", field=name, fix="give it once")
        else:
            found[name] = value
    return found


def require_integers(given: dict[str, Any], names: frozenset[str]) -> None:
    """Refuses text that the conversion would accept but is not written as a whole number: ``1e3``, ``1.0``.

    Raises:
        HttpError: 422; one of these parameters is not a whole number.
    """
    for name in names & given.keys():
        if not _INTEGER.fullmatch(given[name]):
            raise HttpError(422, "invalid", "Expected `int`", field=name)


def require_text(given: dict[str, Any]) -> None:
    """Refuses text that no file system and no database accepts.

    Raises:
        HttpError: 400; a value contains NUL or a lone surrogate.
    """
    _check_value(given, 1)


def _object_of_unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is given twice in one object")
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _parse_int(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise ValueError(f"a number has {len(text)} digits")
    return int(text)


def _parse_float(text: str) -> float:
    found = float(text)
    if not math.isfinite(found):
        raise ValueError(f"the number {text} is too large")
    return found


def _check_value(value: Any, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise _malformed(f"the body is nested more than {MAX_DEPTH} deep")
    if isinstance(value, str):
        if "\0" in value or any("\ud800" <= char <= "\udfff" for char in value):
            raise _malformed("a text contains NUL or half of a character")
    elif isinstance(value, dict):
        for key, one in value.items():
            _check_value(key, depth + 1)
            _check_value(one, depth + 1)
    elif isinstance(value, list):
        for one in value:
            _check_value(one, depth + 1)


def _malformed(message: str) -> HttpError:
    return HttpError(400, "malformed", message)
