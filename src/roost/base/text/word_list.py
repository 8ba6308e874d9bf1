"""Lists of names in messages."""

from __future__ import annotations

from collections.abc import Sequence


def join_names(names: Sequence[str], most: int = 4) -> str:
    """Returns ``a, b, c``; of more than ``most`` + 1 names the first ``most`` and the number of the
    others."""
    more = len(names) - most
    return ", ".join(names) if more <= 1 else f"{', '.join(names[:most])} and {more} more"
