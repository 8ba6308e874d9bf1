"""Spark-lines and bars of characters."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from rich.segment import Segment
from rich.style import Style

_LEVELS = "▁▂▃▄▅▆▇█"
_FILLS = "█▓▒"
"""Of the parts of a bar without colours."""


def spark(
    values: Iterable[float | None], width: int, low: float | None = None, high: float | None = None
) -> str:
    """Returns the newest values as blocks of eight heights; of more values than characters each character
    shows the largest distance from the mean of its share, so that a spike stays visible.

    Args:
        values: The values, the oldest first; None and non-finite ones are gaps.
        width: The characters.
        low: The value of the lowest block; None: the least.
        high: The value of the highest block; None: the greatest.
    """
    found = list(values)
    finite = [one for one in found if one is not None and math.isfinite(one)]
    if not finite or width <= 0:
        return " " * max(0, width)
    shown: list[float | None] = _reduce(found, width, sum(finite) / len(finite))
    least = min(finite) if low is None else low
    most = max(finite) if high is None else high
    span = most - least
    text = ""
    for one in shown:
        if one is None:
            text += " "
        else:
            level = (
                (one - least) / span if span > 0 and math.isfinite(span) else 0.0 if low is not None else 0.5
            )
            text += _LEVELS[max(0, min(7, int(level * 8)))]
    return text.rjust(width)


def _reduce(values: Sequence[float | None], width: int, mean: float) -> list[float | None]:
    if len(values) <= width:
        return [one if one is not None and math.isfinite(one) else None for one in values]
    shown: list[float | None] = []
    for place in range(width):
        part = values[place * len(values) // width : (place + 1) * len(values) // width]
        finite = [one for one in part if one is not None and math.isfinite(one)]
        shown.append(max(finite, key=lambda one: abs(one - mean)) if finite else None)
    return shown


def bar(parts: Sequence[tuple[float, Style]], width: int, rest: Style) -> list[Segment]:
    """Returns a bar of exactly a width, with coloured parts one after the other.

    Args:
        parts: The share of each part, from 0 to 1, and its style.
        width: The characters of the bar.
        rest: The style of what no part takes.
    """
    found: list[Segment] = []
    begun = 0.0
    used = 0
    for number, (share, style) in enumerate(parts):
        begun += max(0.0, share) if math.isfinite(share) else 0.0
        end = min(width, int(begun * width + 1e-9))
        if end == used and share > 0 and used < width and len(parts) > 1:
            end = used + 1  # a small part is visible, too
        if end > used:
            fill = _FILLS[number % len(_FILLS)] if style.color is None else _FILLS[0]
            found.append(Segment(fill * (end - used), style))
            used = end
    if used < width:
        found.append(Segment("░" * (width - used), rest))
    return found
