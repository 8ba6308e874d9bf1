"""What is looked for among many runs: ``status:running lr<1e-3 valid/accuracy>=0.9 sort:-valid/accuracy``.

Terms stand apart by spaces, and all of them must hold:

- ``digits``: a part of the name or the description, in upper or lower case;
- ``key:text``: as a part of a text, also without regard to case; a number, and a state, as a whole;
- ``key=value``, ``key!=value``, ``key<number``, ``key<=number``, ``key>number``, ``key>=number``;
- ``sort:key``, ``sort:-key``: ascending, descending; of several the first counts most.

A key or a value that holds a space or an operator stands in quotes, ``"`` or ``'``. Which keys there are says
`roost.operations.reading.search`. Nothing here is a pattern: a text is looked for as it stands.
"""

from __future__ import annotations

import contextlib
import re
from datetime import datetime
from typing import Literal, NamedTuple, NoReturn

from roost.base.errors import UsageError
from roost.base.text.suggestions import did_you_mean

STATES = ("new", "starting", "running", "succeeded", "failed", "stopped", "crashed", "damaged")
MAX_CHARACTERS = 4096
MAX_TERMS = 64

Operator = Literal[":", "=", "!=", "<", "<=", ">", ">="]

_ORDER_OPERATORS: tuple[Operator, ...] = ("<", "<=", ">", ">=")
_LONG_OPERATORS: dict[str, Operator] = {"<=": "<=", ">=": ">=", "!=": "!=", "==": "="}
_SHORT_OPERATORS: dict[str, Operator] = {":": ":", "=": "=", "<": "<", ">": ">"}
_OPERATOR_CORRECTIONS = {"=<": "<=", "=>": ">=", "<>": "!=", "=!": "!="}
_KEY_ALIASES = {"status": "state"}
"""Other words for keys."""
_UNIT_SECONDS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)(s|m|min|h|d)")


class Key(NamedTuple):
    """What is compared, and where in the query it stands."""

    name: str
    place: int
    """Its first character, from 1."""


class Word(NamedTuple):
    """A part of the name or the description."""

    text: str


class Comparison(NamedTuple):
    """One term with a key."""

    key: Key
    operator: Operator
    text: str
    number: float | None
    """The text as a number, if it is one."""


class SortKey(NamedTuple):
    """By what is sorted."""

    key: Key
    descending: bool


class Query(NamedTuple):
    """All terms, in their order."""

    words: list[Word]
    comparisons: list[Comparison]
    orders: list[SortKey]

    @property
    def keys(self) -> list[Key]:
        """All that it names."""
        return [*(one.key for one in self.comparisons), *(one.key for one in self.orders)]


class _Term(NamedTuple):
    """A term as it stands: what is before the first operator, and what is after it."""

    place: int
    left: str
    operator: str
    right: str
    at: int
    """Of the first character after the operator, from 1."""
    is_quoted: bool
    """Whether a part of it stands in quotes."""


def parse(text: str) -> Query:
    """Reads a query; one without terms means all runs, in the order in which they are.

    Raises:
        UsageError: It means nothing; says which character begins what does not.
    """
    if len(text) > MAX_CHARACTERS:
        _refuse(
            f"it has {len(text)} characters", 1, text[:40] + "…", f"give at most {MAX_CHARACTERS} characters"
        )
    found = Query([], [], [])
    for number, term in enumerate(_split_terms(text)):
        if number == MAX_TERMS:
            _refuse(
                "it goes on after its last term", term.place, term.left, f"give at most {MAX_TERMS} terms"
            )
        if not term.operator:
            found.words.append(Word(term.left.casefold()))
        elif term.left == "sort" and term.operator == ":":
            found.orders.append(_parse_sort_key(term))
        else:
            found.comparisons.append(_parse_comparison(term))
    return found


def unknown_key_error(key: Key, what: str, known: list[str]) -> UsageError:
    """The error for a key that no run has, or that several settings end in.

    Args:
        key: That one.
        what: What is wrong with it.
        known: What could have been meant.
    """
    fix = f"{did_you_mean(key.name, known)}`roost show RUN` tells what a run has"
    return UsageError(f"character {key.place}: {what}", setting="query", received=key.name, fix=fix)


def _parse_sort_key(term: _Term) -> SortKey:
    descending = term.right.startswith("-")
    name = term.right[descending:]
    if not name:
        _refuse("it says not by what to sort", term.at, "sort:", "write sort:key or sort:-key")
    return SortKey(Key(_KEY_ALIASES.get(name, name), term.at + descending), descending)


def _parse_comparison(term: _Term) -> Comparison:
    if not term.left:
        after = term.right or "VALUE"
        fix = f"write key{term.operator}{after}, without spaces, or put what you look for into quotes"
        _refuse("an operator has no key before it", term.place, term.operator + term.right, fix)
    operator = _LONG_OPERATORS.get(term.operator) or _SHORT_OPERATORS.get(term.operator)
    if operator is None:
        fix = f"write {term.left}{_OPERATOR_CORRECTIONS[term.operator]}{term.right}"
        _refuse("there is no such operator", term.at - 2, term.operator, fix)
    if not term.right and not term.is_quoted:
        _refuse(f"nothing stands after {term.left}{term.operator}", term.at, term.left + term.operator,
                f"write {term.left}{term.operator}VALUE, without spaces")  # fmt: skip
    name = _KEY_ALIASES.get(term.left, term.left)
    number = _parse_number(name, term.right)
    if operator in _ORDER_OPERATORS and number is None:
        fix = f"give a number, as in {term.left}{operator}1e-3"
        _refuse(f"{operator} compares numbers", term.at, term.right, fix)
    if name == "state" and term.right not in STATES:
        fix = (did_you_mean(term.right, STATES) or "").rstrip() or f"give one of {', '.join(STATES)}"
        _refuse("there is no such state", term.at, term.right, fix)
    return Comparison(Key(name, term.place), operator, term.right, number)


def _parse_number(key: str, text: str) -> float | None:
    with contextlib.suppress(ValueError):
        return float(text) if "_" not in text else None
    if key == "seconds" and (found := _DURATION.fullmatch(text)):
        return float(found[1]) * _UNIT_SECONDS[found[2]]
    if key == "started":
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
    """What stands up to the next space or one of ``stop``, without its quotes; where it ends."""
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


def _refuse(what: str, place: int, received: str, fix: str) -> NoReturn:
    raise UsageError(f"character {place}: {what}", setting="query", received=received, fix=fix)
