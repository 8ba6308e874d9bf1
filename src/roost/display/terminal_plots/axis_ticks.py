"""Round numbers on an axis, and their labels."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

_MOST = sys.float_info.max


@dataclass(frozen=True)
class Axis:
    """A range of numbers that is drawn from one end of an axis to the other."""

    low: float
    high: float
    logarithmic: bool = False

    @classmethod
    def around(cls, numbers: Sequence[float], *, logarithmic: bool = False) -> Axis:
        """Returns the axis of some finite numbers, above 0 where it is logarithmic."""
        low, high = min(numbers, default=0.0), max(numbers, default=1.0)
        if low == high:
            half = abs(low) / 2 or 1.0
            low, high = (low / 2 or low, high * 2) if logarithmic else (low - half, high + half)
            low, high = max(low, -_MOST), min(high, _MOST)  # twice a number may be infinite
        return cls(low, high, logarithmic)

    def fraction(self, number: float) -> float:
        """Returns the place of a number: 0 at the low end, 1 at the high end."""
        if self.logarithmic:
            low = math.log(self.low)
            return (math.log(number) - low) / (math.log(self.high) - low)
        # Halves, as the difference of two large numbers may be infinite.
        return (number / 2 - self.low / 2) / (self.high / 2 - self.low / 2)

    def ticks(self, count: int) -> list[float]:
        """Returns about ``count`` round numbers on the axis."""
        if self.logarithmic:
            return self._logarithmic_ticks(count)
        distance = (self.high / 2 - self.low / 2) / max(1, count) * 2
        power = 10.0 ** math.floor(math.log10(distance)) if distance else 1.0
        distance = next((one * power for one in (1, 2, 5) if one * power >= distance), 10 * power)
        if math.isinf(distance):  # the range is nearly that of all floats
            distance = power
        first, last = math.ceil(self.low / distance - 1e-9), math.floor(self.high / distance + 1e-9)
        return [number * distance for number in range(first, min(last, first + 10 * count) + 1)]

    def _logarithmic_ticks(self, count: int) -> list[float]:
        first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
        every = max(1, math.ceil((last - first + 1) / max(1, count)))
        decades = [10.0**power for power in range(first, last + 1, every)]
        return decades if len(decades) > 1 else [self.low, *decades, self.high]


def number_label(number: float) -> str:
    """Returns the label of a number, at most nine characters."""
    return f"{number:.4g}".replace("e+0", "e").replace("e-0", "e-").replace("e+", "e")


def time_label(seconds: float, span: float) -> str:
    """Returns the label of a time of day; of a span of more than two days the date."""
    return time.strftime("%m-%d" if span > 2 * 86400 else "%H:%M", time.localtime(seconds))
