"""Durations as text."""

from __future__ import annotations


def format_duration(seconds: float | None) -> str:
    """Returns ``1d 02h``, ``3h 05m``, ``4m 09s`` or ``7.1s``; an empty text for None."""
    if seconds is None:
        return ""
    if seconds < 60:
        return f"{seconds:.1f}s"
    whole = int(seconds)
    for name, lower, size in (("d", "h", 86400), ("h", "m", 3600), ("m", "s", 60)):
        if whole >= size:
            return f"{whole // size}{name} {whole % size // {'h': 3600, 'm': 60, 's': 1}[lower]:02d}{lower}"
    return ""


def format_short_duration(seconds: float) -> str:
    """As `format_duration`, but below one second in milliseconds: ``3.14 ms``."""
    return f"{seconds * 1000:.3g} ms" if seconds < 0.9995 else format_duration(seconds)


def format_age(seconds: float) -> str:
    """Returns how long ago something was, in its largest unit: ``now``, ``40s ago``, ``5m ago``, ``3h ago``,
    ``12d ago``."""
    for name, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        if seconds >= size:
            return f"{int(seconds // size)}{name} ago"
    return "now"
