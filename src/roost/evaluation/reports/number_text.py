"""Numbers and plain values of a report as text."""

from __future__ import annotations

import json
import math
from typing import Any

MAX_CHARACTERS = 600
"""Of one value of a case."""


def number_text(value: float | int | None) -> str:
    """Returns a number with four significant digits; a count with separators; a dash for None."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{value:,}"
    if not math.isfinite(value):
        return str(value)
    if value == int(value) and abs(value) < 1e6:
        return str(int(value))
    return f"{value:.4g}"


def value_text(value: Any) -> str:
    """Returns a value of a row as one text, cut after `MAX_CHARACTERS`."""
    if isinstance(value, bool | int | float) or value is None:
        return number_text(value)
    if not isinstance(value, str):
        value = _rounded(value.tolist() if hasattr(value, "tolist") else value)
        value = json.dumps(value, ensure_ascii=False)
    if len(value) <= MAX_CHARACTERS:
        return str(value)
    return f"{value[:MAX_CHARACTERS]}… ({len(value):,} characters)"


def _rounded(value: Any) -> Any:
    """Returns plain data with four significant digits of each number."""
    if isinstance(value, float) and math.isfinite(value):
        return float(f"{value:.4g}")
    if isinstance(value, list):
        return [_rounded(one) for one in value]
    return {name: _rounded(one) for name, one in value.items()} if isinstance(value, dict) else value


def interval_text(interval: Any) -> str:
    """Returns a confidence interval as ``low … high``; nothing for None."""
    return "" if interval is None else f"{number_text(interval[0])} … {number_text(interval[1])}"
