"""Untrusted text, made safe for a terminal."""

from __future__ import annotations

import re

_BEYOND_SPACE = r"\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_CONTROL = rf"\x00-\x08\x0b\x0c\x0e-\x1f{_BEYOND_SPACE}"
_HARMFUL = re.compile(rf"[\r{_CONTROL}]")
_COLOUR_OR_HARMFUL = re.compile(rf"\x1b\[[0-9;:]*m|[{_CONTROL}]")
_EXTENDED_COLOUR = re.compile(r"[345]8[;:](5[;:]\d*|2([;:]\d*){3,4})")
_HARMFUL_IN_JSON = re.compile(rf"[{_BEYOND_SPACE}]")
"""JSON itself escapes what is below a space."""


def escape_control(text: str, *, colours: bool = False) -> str:
    """Returns the text with all control characters as visible escapes, because they could move the cursor,
    set the title, change the direction of writing or answer in the user's place. Line ends and tabs stay.

    Args:
        text: The text.
        colours: Whether colours, and the carriage returns of progress bars, stay; for the output of a run.
            Concealed text is no colour.
    """
    if colours:
        return _COLOUR_OR_HARMFUL.sub(
            lambda found: found[0] if _is_colour(found[0]) else _visible(found), text
        )
    return _HARMFUL.sub(_visible, text)


def escape_json(text: str) -> str:
    """Returns JSON, as an encoder wrote it, with what would act on a terminal as ``\\u`` escapes: the same
    values, for every reader."""
    if text.isascii() and "\x7f" not in text:
        return text
    return _HARMFUL_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _is_colour(found: str) -> bool:
    """Whether a match is a sequence of colours and not a single character. Code 8 conceals text, and is
    none."""
    return len(found) > 1 and "8" not in re.split("[;:]", _EXTENDED_COLOUR.sub("", found[2:-1]))


def _visible(found: re.Match[str]) -> str:
    return repr(found[0])[1:-1]
