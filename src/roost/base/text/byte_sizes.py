"""Numbers of bytes in words."""

from __future__ import annotations

import re

from roost.base.errors import UsageError

_MEMORY = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)(|[MG](?:i?B)?)", re.IGNORECASE)
MIN_CARD_MEMORY_MB = 64
"""What computes on a card takes several times as much, before its first tensor."""


def format_bytes(num_bytes: float) -> str:
    """``12 B``, ``3.4 kB``, ``56 MB`` or ``7.891 GB`` of a file, in powers of 1000."""
    left = float(num_bytes)
    for unit in ("B", "kB", "MB"):
        if left < 1000:
            return f"{left:.3g} {unit}"
        left /= 1000
    return f"{left:.4g} GB"


def format_memory(mb: float) -> str:
    """``512 MB`` or ``12.1 GB``, in powers of 1024 as memory is counted everywhere."""
    return f"{mb:.0f} MB" if mb < 1000 else f"{mb / 1024:.1f} GB"


def parse_memory(text: str, *, setting: str, min_mb: int = 1) -> int:
    """The MB of ``20GB``, ``20G``, ``20GiB``, ``512MB`` or ``20000``, as `format_memory` counts them: all in powers
    of 1024.

    Args:
        text: What was typed.
        setting: Where, for messages.
        min_mb: Less is refused: gigabytes were meant.

    Raises:
        UsageError: It is no memory above 0, or too little.
    """
    parts = _MEMORY.fullmatch(text.replace(" ", ""))
    mb = round(float(parts[1]) * (1024 if parts[2][:1].upper() == "G" else 1)) if parts else 0
    if not mb:
        fix = "write megabytes (20000), or 20GB"
        raise UsageError("is no memory", setting=setting, received=text, fix=fix)
    if mb < min_mb:
        meant = f"write {parts[1]}GB if you mean gigabytes; " if parts and not parts[2] else ""
        fix = f"{meant}{min_mb} MB are the least"
        raise UsageError(
            f"is {format_memory(mb)}, too little for anything", setting=setting, received=text, fix=fix
        )
    return mb
