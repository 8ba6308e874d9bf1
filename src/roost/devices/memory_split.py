"""An amount of memory, divided among the fewest cards that have it together."""

from __future__ import annotations

from collections.abc import Iterable


def fewest_cards(total_mb: int, free_mb: Iterable[int]) -> tuple[int, int] | None:
    """Returns how many cards, as few as suffice, and the MB of each; None if all cards together have less.

    Args:
        total_mb: The memory, of all cards together.
        free_mb: The memory that each card can give.
    """
    for num, least in enumerate(sorted(free_mb, reverse=True), 1):
        if (each_mb := -(-total_mb // num)) <= least:
            return num, each_mb
    return None
