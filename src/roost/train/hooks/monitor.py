"""The metric by which a hook decides: its value, and whether it improved."""

from __future__ import annotations

import math
from collections.abc import Mapping

from roost.train.evaluation.monitored_metrics import check_monitor


def monitored_value(results: Mapping[str, float], monitor: str, *, setting: str) -> float:
    """Returns the value of ``monitor`` in the results of a validation.

    Raises:
        ConfigError: It was not measured; the error names the metrics that were.
    """
    check_monitor(results, monitor, setting=setting)
    return results[monitor]


def is_better(
    value: float, than: float, *, mode: str, min_delta: float = 0.0, relative: bool = False
) -> bool:
    """Whether ``value`` improves on ``than`` by more than ``min_delta``; NaN never does.

    Args:
        value: The new value.
        than: The best value so far; infinite at the start (`worst_value`).
        mode: "min" or "max".
        min_delta: Not negative.
        relative: Whether ``min_delta`` is a share of the absolute value of ``than``: 0.01 of -200 is 2.
    """
    if math.isnan(value):
        return False
    if relative and math.isfinite(than):
        min_delta *= abs(than)
    if math.isinf(than):  # min_delta may be infinite, too
        min_delta = 0.0
    return value < than - min_delta if mode == "min" else value > than + min_delta


def worst_value(mode: str) -> float:
    """The value than which every other one is better."""
    return math.inf if mode == "min" else -math.inf
