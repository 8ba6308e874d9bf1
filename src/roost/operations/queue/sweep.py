"""Sweeps: overrides that name several values are expanded to all combinations."""

from __future__ import annotations

import itertools
import math
import re
import shlex
from collections.abc import Collection, Sequence

from roost.base.config_files import parse_scalar
from roost.base.errors import ConfigError, UsageError

_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)")
_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_RANGE_WITH_OTHER_DOTS = re.compile(r"(-?\d+)\.{3,}(-?\d+)")
_RANGE_OF_NUMBERS = re.compile(rf"{_NUMBER}\.\.{_NUMBER}")
_NOT_NAME_CHARS = re.compile(r"[^\w.+-]+")
_PAIRS = {")": "(", "]": "[", "}": "{"}
MAX_TASKS = 10_000
"""The most tasks of one sweep."""


def expand(overrides: Sequence[str]) -> list[tuple[str, ...]]:
    """Returns every combination of the values that the overrides name, the last override changing fastest;
    one combination if none names several values.

    ``x.lr=1e-3,1e-4`` are two values, ``seed=0..4`` are five. A comma inside brackets or quotes separates
    nothing: ``betas=[0.9,0.99]`` is one value.

    Args:
        overrides: As for `run`.

    Raises:
        UsageError: A value is empty or occurs twice, a range is empty or not of whole numbers, a key of
            several values is given again, or there are too many combinations.
    """
    _require_no_repetition(overrides)
    choices = [_choices(override) for override in overrides]
    number = math.prod(map(len, choices))
    if number > MAX_TASKS:
        fix = f"name fewer values: {' x '.join(str(len(found)) for found in choices if len(found) > 1)}"
        raise UsageError(f"this sweep has {number:,} tasks, and at most {MAX_TASKS:,} are allowed", fix=fix)
    return list(itertools.product(*choices))


def covering_combinations(overrides: Sequence[str], *, fixed_keys: Collection[str]) -> list[tuple[str, ...]]:
    """Returns the fewest combinations of `expand` in which every value of every key occurs.

    Args:
        overrides: As for `expand`.
        fixed_keys: Keys of which only the first value is used.

    Raises:
        UsageError: As for `expand`.
    """
    expand(overrides)
    choices = [_choices(override) for override in overrides]
    choices = [found[:1] if _key(found[0]) in fixed_keys else found for found in choices]
    number = max(map(len, choices), default=1)
    return [tuple(found[min(at, len(found) - 1)] for found in choices) for at in range(number)]


def varied_keys(overrides: Sequence[str]) -> list[str]:
    """Returns the keys that have several values."""
    return [override.partition("=")[0] for override in overrides if len(_choices(override)) > 1]


def label(overrides: Sequence[str], combination: Sequence[str]) -> str:
    """Returns the part of a folder name that distinguishes one combination from the others, such as
    ``lr-1e-3_seed-0``; empty if there is only one. A key is shortened to its last name unless two keys would
    be the same.

    Args:
        overrides: As for `expand`.
        combination: One result of `expand`.
    """
    keys = [key.lstrip("+") for key in varied_keys(overrides)]
    lasts = [key.rpartition(".")[2] for key in keys]
    named = {key: last if lasts.count(last) == 1 else key for key, last in zip(keys, lasts, strict=True)}
    pairs = [one.partition("=") for one in combination]
    found = [(named[key], value) for one, _, value in pairs if (key := one.lstrip("+")) in named]
    # Replaces characters that a shell or roost's command line would not read as part of a name.
    return "_".join("-".join(_NOT_NAME_CHARS.sub("_", text).strip("_") for text in pair) for pair in found)


def with_all_values(error: ConfigError, overrides: Sequence[str], combination: Sequence[str]) -> ConfigError:
    """Returns the error of one combination with a fix for the whole sweep: a setting that the fix writes with
    the combination's value has all values of the override that the error is about, as typed.

    Args:
        error: The error.
        overrides: As for `expand`.
        combination: One result of `expand`.
    """
    fix = error.fix or ""
    for override, one in zip(overrides, combination, strict=True):
        value, text = one.partition("=")[2], override.partition("=")[2]
        if value != text and re.search(rf"(?<![\w.]){re.escape(_key(one))}(?![\w.])", error.message):
            written = "|".join(map(re.escape, (value, str(parse_scalar(value)))))
            given = f"={shlex.quote(text)}".replace("\\", r"\\")
            fix = re.sub(rf"=(?:{written})(?=[\s,`?]|$)", given, fix)
    return ConfigError(error.detail, setting=error.setting, where=error.where, fix=fix or None)


def _key(override: str) -> str:
    return override.partition("=")[0].strip().lstrip("+~")


def _require_no_repetition(overrides: Sequence[str]) -> None:
    """Raises if a key with several values is given again: the last override of a key is the effective one, so
    all but the last task would be lost."""
    keys = [_key(override) for override in overrides]
    for place, override in enumerate(overrides):
        others = (*keys[:place], *keys[place + 1 :])
        if any(f"{keys[place]}.".startswith(f"{other}.") for other in others) and len(_choices(override)) > 1:
            what = "is given twice, and only the last one would have an effect"
            raise _usage_error(
                keys[place], override.partition("=")[2], what, "give it once, with all its values"
            )


def _choices(override: str) -> list[str]:
    key, equals, text = override.partition("=")
    if not equals:
        return [override]
    values = [value for part in _split(text) for value in _range(key, part)]
    if len(values) > 1 and any(not value for value in values):
        raise _usage_error(key, text, "a value is empty", "write them as a,b,c; an empty text is ''")
    if len(set(values)) < len(values):
        raise _usage_error(key, text, "a value comes twice", "name each once")
    return [f"{key}={value}" for value in values]


def _split(text: str) -> list[str]:
    """Returns the parts between commas that are in no brackets and no quotes."""
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
    # With an unclosed bracket or quote the whole text is one value.
    return [text] if quote or len(open_brackets) > 1 else parts


def _range(key: str, text: str) -> list[str]:
    found = _RANGE.fullmatch(text.strip())
    if found is None and (meant := _RANGE_WITH_OTHER_DOTS.fullmatch(text.strip())) is not None:
        raise _usage_error(key, text, "a range has two dots", f"write {key}={meant[1]}..{meant[2]}")
    if found is None and _RANGE_OF_NUMBERS.fullmatch(text.strip()):
        fix = f"write its values: {key}={text.strip().replace('..', ',')}; put a text into quotes"
        raise _usage_error(key, text, "a range consists of whole numbers", fix)
    if found is None:
        return [text]
    first, last = int(found[1]), int(found[2])
    if last < first:
        raise _usage_error(key, text, "the range is empty", f"write {last}..{first}")
    if last - first >= MAX_TASKS:
        raise _usage_error(key, text, f"a sweep has at most {MAX_TASKS:,} tasks", "name fewer")
    return [str(value) for value in range(first, last + 1)]


def _usage_error(key: str, text: str, what: str, fix: str) -> UsageError:
    return UsageError(what, setting=key, received=text, fix=fix)
