"""Bodies and queries of requests, read strictly: what two readers could take for two things is refused."""

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
    "run": ("is no id of a run", "GET /api/v1/runs lists them"),
    "cursor": ("is no cursor", "give back the id of a piece, as cursor or Last-Event-ID, or leave it out"),
}
"""What is said of the fields that have a pattern, and how to mend it."""
_JSON_TYPE_NAMES = {list: "an array", str: "a string", bool: "true or false", type(None): "null"}


def parse_json_object(data: bytes) -> dict[str, Any]:
    """A JSON object.

    Raises:
        Answered: 400; it is none, or one that readers disagree about.
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
        raise _malformed(f"the body is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise _malformed(
            f"the body is JSON, but {_JSON_TYPE_NAMES.get(type(found), 'a number')} and no object"
        )
    _check_value(found, 1)
    return found


def convert_parameters(
    kind: type[T], given: dict[str, Any], *, strict: bool, path_parameters: Collection[str] = ()
) -> T:
    """What is asked, checked.

    Args:
        kind: What it must be.
        given: The parameters.
        strict: False where all of them came as text.
        path_parameters: Those that the path names.

    Raises:
        Answered: 422; it is something else, which is named.
    """
    try:
        return msgspec.convert(given, kind, strict=strict)
    except msgspec.ValidationError as error:
        what, _, path = str(error).partition(" - at `$")
        named = _FIELD_IN_MESSAGE.search(what)
        field = path.rstrip("`").lstrip(".") or (named.group(2) if named else None)
        if named is not None and named[1] == "unknown":
            what, fix = _unknown_parameter(
                named[2], [name for name in _field_names(kind) if name not in path_parameters]
            )
        elif named is not None:
            what, fix = "is missing", None
        else:
            what, fix = _describe_problem(what, (field or "").partition("[")[0], kind)
        raise HttpError(422, "invalid", what, field=field, fix=fix) from None


def _unknown_parameter(name: str, known: Sequence[str]) -> tuple[str, str]:
    fix = f"this route takes {', '.join(known)}" if known else "leave it out: this route takes none"
    return "there is no such parameter", did_you_mean(name, known) + fix


def _field_names(kind: Any) -> list[str]:
    return [one.name for one in msgspec.structs.fields(kind)]


def _describe_problem(what: str, name: str, kind: Any) -> tuple[str, str | None]:
    """What is wrong with a parameter, in words for people, and how to mend it where that does not say it."""
    if _PATTERN_MESSAGE in what and name in _PATTERN_PROBLEMS:
        return _PATTERN_PROBLEMS[name]
    if what.startswith("Expected `array`"):
        return what, "give a list, also of one alone"
    hint = get_type_hints(kind, include_extras=True).get(name)
    if not (words := _literal_values(hint)):
        return what, None
    return what, f"write {'a whole number, or' if _allows_integer(hint) else 'one of'} {', '.join(words)}"


def _allows_integer(hint: Any) -> bool:
    return hint is int or any(map(_allows_integer, get_args(hint)))


def _literal_values(hint: Any) -> list[str]:
    """Those of which a field takes one."""
    if get_origin(hint) is Literal:
        return list(get_args(hint))
    return [word for one in get_args(hint) for word in _literal_values(one)]


def parse_query(text: bytes) -> list[tuple[str, str]]:
    """A query as it came, taken apart.

    Raises:
        Answered: 400; it is not UTF-8, or not percent-encoded.
    """
    try:
        return parse_qsl(text.decode("ascii"), keep_blank_values=True, errors="strict")
    except ValueError:
        raise _malformed("the query is not percent-encoded UTF-8") from None


def query_parameters(pairs: Sequence[tuple[str, str]], list_names: frozenset[str]) -> dict[str, Any]:
    """The parameters of a query.

    Args:
        pairs: As they came.
        list_names: Those that may come more than once; they are lists.

    Raises:
        Answered: 400; one came twice.
    """
    found: dict[str, Any] = {}
    for name, value in pairs:
        _check_value(name, 1)
        _check_value(value, 1)
        if name in list_names:
            found.setdefault(name, []).append(value)
        elif name in found:
            raise HttpError(400, "malformed", "it is given more than once", field=name, fix="give it once")
        else:
            found[name] = value
    return found


def require_integers(given: dict[str, Any], names: frozenset[str]) -> None:
    """Refuses numbers that a typist would not take for one: ``1e3``, ``1.0``.

    Raises:
        Answered: 422; one of these parameters is no whole number.
    """
    for name in names & given.keys():
        if not _INTEGER.fullmatch(given[name]):
            raise HttpError(422, "invalid", "Expected `int`", field=name)


def require_text(given: dict[str, Any]) -> None:
    """Refuses texts that no file and no database takes.

    Raises:
        Answered: 400; one holds a NUL or half of a character.
    """
    _check_value(given, 1)


def _object_of_unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key comes twice in one object")
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _parse_int(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise ValueError(f"a number of {len(text)} digits")
    return int(text)


def _parse_float(text: str) -> float:
    found = float(text)
    if not math.isfinite(found):
        raise ValueError(f"{text} is too large a number")
    return found


def _check_value(value: Any, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise _malformed(f"the body is nested more than {MAX_DEPTH} deep")
    if isinstance(value, str):
        if "\0" in value or any("\ud800" <= char <= "\udfff" for char in value):
            raise _malformed("a text holds a NUL or half of a character")
    elif isinstance(value, dict):
        for key, one in value.items():
            _check_value(key, depth + 1)
            _check_value(one, depth + 1)
    elif isinstance(value, list):
        for one in value:
            _check_value(one, depth + 1)


def _malformed(message: str) -> HttpError:
    return HttpError(400, "malformed", message)
