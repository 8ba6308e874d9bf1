"""Numbers of bytes in words."""

from __future__ import annotations

import re

from roost.base.errors import UsageError

_MEMORY = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)(MB|GB|)", re.IGNORECASE)


def size(num_bytes: float) -> str:
    """``12 B``, ``3.4 kB``, ``56 MB`` or ``7.891 GB`` of a file, in powers of 1000."""
    left = float(num_bytes)
    for unit in ("B", "kB", "MB"):
        if left < 1000:
            return f"{left:.3g} {unit}"
        left /= 1000
    return f"{left:.4g} GB"


def memory(mb: float) -> str:
    """``512 MB`` or ``12.1 GB``, in powers of 1024 as memory is counted everywhere."""
    return f"{mb:.0f} MB" if mb < 1000 else f"{mb / 1024:.1f} GB"


def parse_memory(text: str, *, setting: str) -> int:
    """The MB of ``20GB``, ``512MB`` or ``20000``, as `memory` counts them.

    Raises:
        UsageError: It is no memory above 0.
    """
    parts = _MEMORY.fullmatch(text.replace(" ", ""))
    mb = round(float(parts[1]) * (1024 if parts[2].upper() == "GB" else 1)) if parts else 0
    if not mb:
        fix = "write megabytes (20000), or 20GB"
        raise UsageError("is no memory", setting=setting, received=text, fix=fix)
    return mb
