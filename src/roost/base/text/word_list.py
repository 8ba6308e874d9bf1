"""Names in a message."""

from __future__ import annotations

from collections.abc import Sequence


def join_names(names: Sequence[str], most: int = 4) -> str:
    """``a, b, c``; of more than ``most`` + 1 names the first ones, and how many more there are."""
    more = len(names) - most
    return ", ".join(names) if more <= 1 else f"{', '.join(names[:most])} and {more} more"
