"""The values that a project has put into its log since the last look, as the values of rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from torch import Tensor

_PATH_SEPARATOR = "/"
_MAX_DEPTH = 64
"""A dictionary in more dictionaries than this has no rows."""


class LogRows:
    """Finds what is new in a log, the dictionary of ``initLog``, which the project's methods fill.

    - Values appended to a list are new. Several are recorded as their mean.
    - A number outside of a list is new if it is another one than before.
    - A dictionary in the log has its own values: ``log["loss"]["d"]`` is ``loss/d``.
    - Everything that is not a number (or a tensor or array with one element) is left out, and so is a
      dictionary within itself.
    - A list that is shorter than before was cleared: all its values are new.

    What was seen is part of a checkpoint, as the log is, so no value is recorded twice or left out.
    """

    def __init__(self) -> None:
        self._lengths: dict[str, int] = {}
        """The number of values of each list that were seen."""
        self._numbers: dict[str, float] = {}
        """The numbers outside of lists, as they were seen."""

    def new_values(self, log: Mapping[Any, Any]) -> dict[str, float]:
        """Returns the new values by path. A sync point, if the log has tensors of a device."""
        found: dict[str, float] = {}
        for path, value in log_entries(log):
            if isinstance(value, list):
                self._add_list(found, path, value)
            elif (number := as_number(value)) is not None and not _same(self._numbers.get(path), number):
                self._numbers[path] = found[path] = number
        return found

    def _add_list(self, found: dict[str, float], path: str, values: list[Any]) -> None:
        seen = self._lengths.get(path, 0)
        if len(values) == seen:
            return
        self._lengths[path] = len(values)
        new = [n for one in values[seen if len(values) > seen else 0 :] if (n := as_number(one)) is not None]
        if new:
            found[path] = (math.fsum(new) if all(map(math.isfinite, new)) else sum(new)) / len(new)

    def state_dict(self) -> dict[str, Any]:
        """Returns what was seen."""
        return {"lengths": dict(self._lengths), "numbers": dict(self._numbers)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the result of `state_dict`."""
        self._lengths, self._numbers = dict(state["lengths"]), dict(state["numbers"])


def log_entries(
    log: Mapping[Any, Any], prefix: str = "", above: tuple[Mapping[Any, Any], ...] = ()
) -> Iterator[tuple[str, Any]]:
    """Yields everything in a log that is no dictionary, by its path."""
    above = (*above, log)
    for name, value in log.items():
        path = f"{prefix}{name}"
        if isinstance(value, Mapping):
            if len(above) < _MAX_DEPTH and not any(one is value for one in above):
                yield from log_entries(value, path + _PATH_SEPARATOR, above)
        else:
            yield path, value


def as_number(value: Any) -> float | None:
    """Returns a number as a float; None for everything else."""
    if isinstance(value, bool | np.bool_):
        return None
    if isinstance(value, int | float | np.integer | np.floating):
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    if isinstance(value, Tensor | np.ndarray) and math.prod(value.shape) == 1 and _has_real_numbers(value):
        return float(value.item())
    return None


def _has_real_numbers(value: Tensor | np.ndarray[Any, Any]) -> bool:
    if isinstance(value, Tensor):
        return not (value.is_complex() or value.is_meta)
    return value.dtype.kind in "biuf"


def _same(before: float | None, now: float) -> bool:
    return before == now or (before is not None and math.isnan(before) and math.isnan(now))
