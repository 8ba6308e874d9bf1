"""Sweeps: overrides that name several values, and every combination of them."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence

from roost.base.errors import UsageError

_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)")
_PAIRS = {")": "(", "]": "[", "}": "{"}
MOST = 10_000
"""Tasks of one sweep."""


def expand(overrides: Sequence[str]) -> list[tuple[str, ...]]:
    """Every combination of what the overrides name, the last one changing fastest; one if none names several.

    ``lr=1e-3,1e-4`` are two values, ``seed=0..4`` are five. A comma inside brackets or quotes separates
    nothing: ``betas=[0.9,0.99]`` is one value.

    Args:
        overrides: As `run` takes them.

    Raises:
        UsageError: A value is empty or comes twice, a range is empty, or there are too many combinations.
    """
    choices = [_choices(override) for override in overrides]
    number = math.prod(map(len, choices))
    if number > MOST:
        fix = f"name fewer values: {' x '.join(str(len(found)) for found in choices if len(found) > 1)}"
        raise UsageError(f"this sweep has {number:,} tasks, and {MOST:,} are the most", fix=fix)
    return list(itertools.product(*choices))


def varied(overrides: Sequence[str]) -> list[str]:
    """The keys that have several values."""
    return [override.partition("=")[0] for override in overrides if len(_choices(override)) > 1]


def _choices(override: str) -> list[str]:
    key, equals, text = override.partition("=")
    if not equals:
        return [override]
    values = [value for part in _split(text) for value in _range(key, part)]
    if len(values) > 1 and any(not value for value in values):
        raise _wrong(key, text, "a value is empty", "write them as a,b,c; an empty text is ''")
    if len(set(values)) < len(values):
        raise _wrong(key, text, "a value comes twice", "name each once")
    return [f"{key}={value}" for value in values]


def _split(text: str) -> list[str]:
    """The parts between commas that stand in no bracket and no quotes."""
    parts, open_brackets, quote = [""], [""], ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"" and not parts[-1].strip():
            quote = letter
        elif letter in "([{":
            open_brackets.append(letter)
        elif letter in _PAIRS and open_brackets[-1] == _PAIRS[letter]:
            open_brackets.pop()
        elif letter == "," and len(open_brackets) == 1:
            parts.append("")
            continue
        parts[-1] += letter
    # What was opened and never closed is text, and its commas are its own.
    return [text] if quote or len(open_brackets) > 1 else parts


def _range(key: str, text: str) -> list[str]:
    found = _RANGE.fullmatch(text.strip())
    if found is None:
        return [text]
    first, last = int(found[1]), int(found[2])
    if last < first:
        raise _wrong(key, text, "the range is empty", f"write {last}..{first}")
    if last - first >= MOST:
        raise _wrong(key, text, f"a sweep has at most {MOST:,} tasks", "name fewer")
    return [str(value) for value in range(first, last + 1)]


def _wrong(key: str, text: str, what: str, fix: str) -> UsageError:
    return UsageError(what, setting=key, received=text, fix=fix)
