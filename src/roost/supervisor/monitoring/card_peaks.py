"""The peak of card memory, as reported by the workers of a session (standard library only)."""

# Standard library only

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from roost.base.system.worker_protocol import OUT_OF_MEMORY
from roost.package.session_schema import CardMemory

_MAX_MB = 1e9
"""More MB than any card has."""


def largest_peak(reports: Iterable[bytes]) -> CardMemory | None:
    """Returns the report of the rank with the largest peak, among the ranks that ran out of memory if there
    are any. None: no rank has reported one.

    Args:
        reports: All bytes that came through the report pipes.
    """
    found = [one for report in reports for one in _memory_reports(report)]
    if not found:
        return None
    return max(found, key=lambda one: (one[0], one[1].peak_mb or 0.0))[1]


def _memory_reports(report: bytes) -> Iterator[tuple[bool, CardMemory]]:
    """Yields from each valid line whether its rank ran out of memory, and the numbers; the pipe is open to
    all of the worker's code."""
    for line in report.splitlines():
        try:
            fields = json.loads(line)
            memory = fields["memory"]
            numbers = CardMemory.from_json({name: _number(memory.get(name)) for name in CardMemory.DEFAULTS})
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue
        if numbers.peak_mb is not None:
            yield fields.get("reason") == OUT_OF_MEMORY, numbers


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value <= _MAX_MB else None
