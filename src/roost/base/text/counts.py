"""Counts as text."""

# Standard library only

from __future__ import annotations


def format_cores(number: int) -> str:
    """Returns a number of CPU cores: ``1 core``, ``3 cores``."""
    return f"{number} core{'' if number == 1 else 's'}"
