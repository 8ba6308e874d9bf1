"""The query language for lists of runs: ``status:running lr<1e-3 valid/accuracy>=0.9 sort:-valid/accuracy``.

Terms are separated by spaces, and a run must match all of them:

- ``digits``: a part of the name or the description, case-insensitive;
- ``key:text``: a part of a text, case-insensitive; of a number, a state or a tag, the whole value;
- ``key=value``, ``key!=value``, ``key<number``, ``key<=number``, ``key>number``, ``key>=number``;
- ``sort:key``, ``sort:-key``: ascending, descending; the first of several has priority.

A key or a value with a space or an operator is put into quotes, ``"`` or ``'``. For the keys see
`roost.operations.listing.search`. Values are no patterns: every character is matched literally.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from datetime import datetime
from typing import Literal, NamedTuple, NoReturn

from roost.base.errors import UsageError
from roost.base.text.suggestions import did_you_mean
from roost.operations.listing.package_row import FOREIGN
from roost.package.session_schema import ENDED_STATES, LIVE_STATES

STATES = ("new", *LIVE_STATES, *ENDED_STATES, "damaged", FOREIGN)
MAX_CHARACTERS = 4096
MAX_TERMS = 64

Operator = Literal[":", "=", "!=", "<", "<=", ">", ">="]

_ORDER_OPERATORS: tuple[Operator, ...] = ("<", "<=", ">", ">=")
_LONG_OPERATORS: dict[str, Operator] = {"<=": "<=", ">=": ">=", "!=": "!=", "==": "="}
_SHORT_OPERATORS: dict[str, Operator] = {":": ":", "=": "=", "<": "<", ">": ">"}
_OPERATOR_CORRECTIONS = {"=<": "<=", "=>": ">=", "<>": "!=", "=!": "!="}
_KEY_ALIASES = {"status": "state", "tag": "tags"}
"""Alternative names of keys."""
_DURATION_KEYS = ("seconds", "left")
_TIME_KEYS = ("started", "submitted", "ended")
SIZE = "size"
"""The key of the bytes that a package takes on the disk."""
_UNIT_BYTES = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)(B|kB|MB|GB|TB)")
_TRUTHS = ("true", "false")
_UNIT_SECONDS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)(s|m|min|h|d)")


class Key(NamedTuple):
    """The key of a term, with its position in the query."""

    name: str
    position: int
    """Of its first character, from 1; 0 for a key that was given alone."""

    def error(self, message: str, fix: str) -> UsageError:
        """Returns the error about this key."""
        if not self.position:
            return UsageError(message, received=self.name, fix=fix)
        return UsageError(
            f"character {self.position}: {message}", setting="query", received=self.name, fix=fix
        )


class Word(NamedTuple):
    """A term without a key: a part of the name or the description."""

    text: str


class Comparison(NamedTuple):
    """A term with a key, an operator and a value."""

    key: Key
    operator: Operator
    text: str
    number: float | None
    """The text as a number; None if it is none."""


class SortKey(NamedTuple):
    """A key by which runs are sorted."""

    key: Key
    descending: bool


class Query(NamedTuple):
    """The terms of a query, each kind in the order of the query."""

    words: list[Word]
    comparisons: list[Comparison]
    sort_keys: list[SortKey]

    @property
    def keys(self) -> list[Key]:
        """The keys of all terms."""
        return [*(one.key for one in self.comparisons), *(one.key for one in self.sort_keys)]


class _Term(NamedTuple):
    """A term, split at its first operator."""

    position: int
    left: str
    operator: str
    right: str
    right_position: int
    """Of the first character after the operator, from 1."""
    is_quoted: bool
    """Whether a part of it is in quotes."""


def parse(text: str, *, states: Sequence[str] = STATES) -> Query:
    """Parses a query. A query without terms selects all runs, in their order.

    Args:
        text: The query.
        states: The states that a term may name.

    Raises:
        UsageError: The query is not valid; names the character at which the error begins.
    """
    if len(text) > MAX_CHARACTERS:
        _refuse(
            f"it has {len(text)} characters", 1, text[:40] + "…", f"give at most {MAX_CHARACTERS} characters"
        )
    found = Query([], [], [])
    for number, term in enumerate(_split_terms(text)):
        if number == MAX_TERMS:
            _refuse("it has too many terms", term.position, term.left, f"give at most {MAX_TERMS} terms")
        if not term.operator:
            found.words.append(Word(term.left.casefold()))
        elif term.left == "sort" and term.operator == ":":
            found.sort_keys.append(_parse_sort_key(term))
        else:
            found.comparisons.append(_parse_comparison(term, states))
    return found


def single_key(name: str) -> Key:
    """Returns a key that was given alone, such as the name of a column."""
    return Key(_KEY_ALIASES.get(name, name), 0)


def unknown_key_error(key: Key, what: str, known: list[str]) -> UsageError:
    """Returns the error for a key that matches nothing.

    Args:
        key: The key.
        what: The message.
        known: Names that may have been intended.
    """
    return key.error(what, f"{did_you_mean(key.name, known)}`roost show RUN` shows the keys of a run")


def _parse_sort_key(term: _Term) -> SortKey:
    descending = term.right.startswith("-")
    name = term.right[descending:]
    if not name:
        _refuse("the sort key is missing", term.right_position, "sort:", "write sort:key or sort:-key")
    return SortKey(Key(_KEY_ALIASES.get(name, name), term.right_position + descending), descending)


def _parse_comparison(term: _Term, states: Sequence[str]) -> Comparison:
    if not term.left:
        after = term.right or "VALUE"
        fix = f"write key{term.operator}{after}, without spaces, or put the text into quotes"
        _refuse("an operator has no key before it", term.position, term.operator + term.right, fix)
    operator = _LONG_OPERATORS.get(term.operator) or _SHORT_OPERATORS.get(term.operator)
    if operator is None:
        fix = f"write {term.left}{_OPERATOR_CORRECTIONS[term.operator]}{term.right}"
        _refuse("there is no such operator", term.right_position - 2, term.operator, fix)
    if not term.right and not term.is_quoted:
        _refuse(f"no value after {term.left}{term.operator}", term.right_position, term.left + term.operator,
                f"write {term.left}{term.operator}VALUE, without spaces")  # fmt: skip
    name = _KEY_ALIASES.get(term.left, term.left)
    number = _parse_number(name, term.right)
    if operator in _ORDER_OPERATORS and number is None and name != SIZE:
        fix = f"give a number, as in {term.left}{operator}1e-3"
        _refuse(f"{operator} compares numbers", term.right_position, term.right, fix)
    if name == SIZE and number is None:
        fix = f"give a size, as in {term.left}{operator}1.5GB; name a setting in full, as in model.{name}"
        _refuse("it is compared with the place on the disk", term.right_position, term.right, fix)
    if name == "state" and term.right not in states:
        fix = (did_you_mean(term.right, states) or "").rstrip() or f"give one of {', '.join(states)}"
        _refuse("there is no such state", term.right_position, term.right, fix)
    if name == "starred" and term.right not in _TRUTHS:
        _refuse(
            "this is true or false", term.right_position, term.right, "write starred:true or starred:false"
        )
    return Comparison(Key(name, term.position), operator, term.right, number)


def _parse_number(key: str, text: str) -> float | None:
    with contextlib.suppress(ValueError):
        return float(text) if "_" not in text else None
    if key in _DURATION_KEYS and (found := _DURATION.fullmatch(text)):
        return float(found[1]) * _UNIT_SECONDS[found[2]]
    if key == SIZE and (found := _SIZE.fullmatch(text)):
        return float(found[1]) * _UNIT_BYTES[found[2]]
    if key in _TIME_KEYS:
        with contextlib.suppress(ValueError, OverflowError, OSError):
            return datetime.fromisoformat(text).timestamp()
    return None


def _split_terms(text: str) -> list[_Term]:
    found = []
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        begin = at
        left, at, was_quoted = _read_part(text, at, stop="<>=:!")
        two, one = text[at : at + 2], text[at : at + 1]
        operator = (
            two
            if two in _LONG_OPERATORS or two in _OPERATOR_CORRECTIONS
            else one
            if one in _SHORT_OPERATORS
            else ""
        )
        at += len(operator)
        after = at + 1
        right, at, is_quoted = _read_part(text, at) if operator else ("", at, False)
        found.append(_Term(begin + 1, left, operator, right, after, was_quoted or is_quoted))
    return found


def _read_part(text: str, at: int, *, stop: str = "") -> tuple[str, int, bool]:
    """Returns the text up to the next space or character of ``stop``, without quotes; its end; and whether it
    was quoted."""
    quote = text[at : at + 1]
    if quote in ('"', "'"):
        end = text.find(quote, at + 1)
        if end < 0:
            _refuse("a quote is not closed", at + 1, text[at : at + 40], f"close it with {quote}")
        after = text[end + 1 : end + 2]
        if after.strip() and after not in stop:
            _refuse("a quote ends within a word", end + 2, text[at : end + 2], "put a space after it")
        return text[at + 1 : end], end + 1, True
    begin = at
    while at < len(text) and not text[at].isspace():
        if text[at] in stop and (text[at] != "!" or text[at + 1 : at + 2] == "="):
            break
        at += 1
    return text[begin:at], at, False


def _refuse(what: str, position: int, received: str, fix: str) -> NoReturn:
    raise UsageError(f"character {position}: {what}", setting="query", received=received, fix=fix)
