"""Types and help texts of the fields of all sections."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

Positive = Annotated[int, Meta(ge=1)]
Natural = Annotated[int, Meta(ge=0)]
Patterns = str | list[str]
"""One or several globs over dotted names."""
Every = str | int
"""An interval: 500 (steps), 2ep, 10/ep, 10min."""

HAS_UNIT = "give it a unit: 40s, 10min, 1h30min or 2d"
"""The fix for a duration without a unit."""


def help_text(text: str, *, fix: str | None = None) -> Meta:
    """Returns a field's line of help and, if the default one does not do, the fix for a value of the wrong
    type."""
    return Meta(description=text, extra={"fix": fix})
