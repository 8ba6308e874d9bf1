"""Looking up the metric that a hook decides by."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from roost.base.errors import ConfigError
from roost.base.suggest import nearest


def check_monitor(known: Collection[str], monitor: str, *, setting: str) -> None:
    """Makes sure that a validation reports ``monitor``.

    Raises:
        ConfigError: It does not; names what it reports.
    """
    if monitor not in known:
        near = f"did you mean {found}? " if (found := nearest(monitor, known)) else ""
        raise ConfigError(
            f"{monitor!r} is never reported; a validation reports: {', '.join(sorted(known)) or 'nothing'}",
            setting=setting,
            fix=f"{near}choose one of these, or return it from Runner.evaluate()",
        )


def monitored(results: Mapping[str, float], monitor: str, *, setting: str) -> float:
    """The value of ``monitor`` in the results of a validation.

    Raises:
        ConfigError: It was not measured; names what was.
    """
    check_monitor(results, monitor, setting=setting)
    return results[monitor]


def better(value: float, than: float, *, mode: str, min_delta: float = 0.0) -> bool:
    """Whether ``value`` improves on ``than`` by more than ``min_delta``; NaN never does."""
    if math.isnan(value):
        return False
    return value < than - min_delta if mode == "min" else value > than + min_delta


def worst(mode: str) -> float:
    """What every value is better than."""
    return math.inf if mode == "min" else -math.inf
