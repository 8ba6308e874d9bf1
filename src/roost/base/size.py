"""A number of bytes in words."""

from __future__ import annotations


def size(num_bytes: float) -> str:
    """``12 B``, ``3.4 kB``, ``56 MB`` or ``7.891 GB``, in powers of 1000."""
    left = float(num_bytes)
    for unit in ("B", "kB", "MB"):
        if left < 1000:
            return f"{left:.3g} {unit}"
        left /= 1000
    return f"{left:.4g} GB"
