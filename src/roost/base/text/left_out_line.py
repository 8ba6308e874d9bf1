"""The line that takes the place of output that is not kept."""

# Standard library only

from __future__ import annotations

LEFT_OUT_PATTERN = (
    rb"roost: (\d{1,3}(?:,\d{3}){0,6}) bytes of output are not kept here \(limits\.output_mb\)\n"
)
"""Matches a `left_out_line`, and captures its number. A run may print anything: the captured text must be a
number. The words must not change: earlier sessions have written them, and `output_cap` finds cuts by them."""


def left_out_line(num_bytes: int) -> bytes:
    """Returns the line that replaces output that is not kept."""
    return f"roost: {num_bytes:,} bytes of output are not kept here (limits.output_mb)\n".encode()
