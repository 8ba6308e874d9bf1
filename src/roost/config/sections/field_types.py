"""What the fields of all sections are made of."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

Positive = Annotated[int, Meta(ge=1)]
Natural = Annotated[int, Meta(ge=0)]
Patterns = str | list[str]
"""One glob, or several, over dotted names."""
Every = str | int
"""An interval: 500 (steps), 2ep, 10/ep, 10min."""

HAS_UNIT = "give it a unit: 40s, 10min, 1h30min or 2d"
"""What to do about a duration that is a number."""


def help_text(text: str, *, fix: str | None = None) -> Meta:
    """A field's line of help, and what to do about a value that it does not take, where that is not plain."""
    return Meta(description=text, extra={"fix": fix})
