"""Untrusted text, made safe for a terminal."""

from __future__ import annotations

import re

_CONTROL = r"\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_HARMFUL = re.compile(rf"[\r{_CONTROL}]")
_COLOUR_OR_HARMFUL = re.compile(rf"\x1b\[[0-9;:]*m|[{_CONTROL}]")


def escape_control(text: str, *, colours: bool = False) -> str:
    """Returns the text with all control characters as visible escapes, because they could move the cursor,
    set the title, change the direction of writing or answer in the user's place. Line ends and tabs stay.

    Args:
        text: The text.
        colours: Whether colours, and the carriage returns of progress bars, stay; for the output of a run.
    """
    if colours:
        return _COLOUR_OR_HARMFUL.sub(lambda found: found[0] if found[0][1:] else _visible(found), text)
    return _HARMFUL.sub(_visible, text)


def _visible(found: re.Match[str]) -> str:
    return repr(found[0])[1:-1]
