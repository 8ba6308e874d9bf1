"""Numbers of bytes in words."""

from __future__ import annotations


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
