"""Sizes of files and of memory as text, and the parser of memory sizes."""

from __future__ import annotations

import re

from roost.base.errors import UsageError

_MEMORY = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)(|[MG](?:i?B)?)", re.IGNORECASE)


def format_bytes(num_bytes: float) -> str:
    """Returns the size of a file as ``12 B``, ``3.4 kB``, ``56 MB`` or ``7.891 GB``, in powers of 1000."""
    value = float(num_bytes)
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.4g} GB"


def format_memory(mb: float) -> str:
    """Returns a size of memory as ``512 MB`` or ``12.1 GB``, in powers of 1024."""
    return f"{mb:.0f} MB" if mb < 1000 else f"{mb / 1024:.1f} GB"


def parse_memory(text: str, *, setting: str, min_mb: int = 1) -> int:
    """Returns the MB of ``20GB``, ``20G``, ``20GiB``, ``512MB`` or ``20000``, all in powers of 1024.

    Args:
        text: The size as the user wrote it.
        setting: The option or setting, for messages.
        min_mb: The smallest size accepted; a smaller one is probably meant in gigabytes.

    Raises:
        UsageError: The text is not a size above 0, or is too small.
    """
    parts = _MEMORY.fullmatch(text.replace(" ", ""))
    mb = round(float(parts[1]) * (1024 if parts[2][:1].upper() == "G" else 1)) if parts else 0
    if not mb:
        fix = "write megabytes (20000), or 20GB"
        raise UsageError("is not a memory size", setting=setting, received=text, fix=fix)
    if mb < min_mb:
        unit = f"write {parts[1]}GB if you mean gigabytes; " if parts and not parts[2] else ""
        fix = f"{unit}give {min_mb} MB or more"
        raise UsageError(f"is {format_memory(mb)}, too little", setting=setting, received=text, fix=fix)
    return mb
