"""The learning rate that the losses of a range test suggest."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

RULE = (
    "the rate at which the smoothed loss falls fastest, at most a tenth of the rate at which it diverges "
    "(range test: Smith 2017, arXiv:1506.01186)"
)
_DIVERGED = 4.0
"""The loss has diverged at so many times its minimum (the rule of fastai's and Lightning's range tests)."""
_WINDOW_SHARE = 25
"""Each loss is smoothed with one of so many losses on either side."""
_MIN_POINTS = 10
_FIRST = 5
_NOISE = 4.0
"""A fall below so many standard deviations of the smoothed loss is none."""


class RateSuggestion(NamedTuple):
    """A learning rate, or why there is none."""

    smoothed: list[float]
    reason: str
    steepest: float | None = None
    divergence: float | None = None
    suggestion: float | None = None


def has_diverged(losses: Sequence[float]) -> bool:
    """Whether the newest loss is not finite, or the newest ones are far above the least: 4 times a positive
    one, and above the first loss. Medians of three are compared, as a single batch may be an outlier."""
    if not losses or not math.isfinite(losses[-1]):
        return bool(losses)
    medians = [statistics.median(losses[max(0, i - 2) : i + 1]) for i in range(len(losses))]
    least = min(medians)
    return medians[-1] > max(losses[0], least + (_DIVERGED - 1) * abs(least))


def suggest(rates: Sequence[float], losses: Sequence[float]) -> RateSuggestion:
    """Returns the learning rate that a range test suggests, by `RULE`.

    Args:
        rates: The learning rate of each step, ascending by a constant factor.
        losses: The losses; shorter if the test ended early, because the last one diverged.
    """
    divergence = rates[len(losses) - 1] if has_diverged(losses) else None
    finite = [loss for loss in losses if math.isfinite(loss)]
    smoothed = _smoothed(_clipped(finite))
    if len(finite) < _MIN_POINTS:
        return RateSuggestion(smoothed, f"the loss diverged after {len(finite)} steps", None, divergence)
    least = min(range(len(smoothed)), key=smoothed.__getitem__)
    before = zip(finite[: least + 1], smoothed, strict=False)
    deviation = statistics.pstdev(loss - mean for loss, mean in before)
    noise = deviation / math.sqrt(2 * _half_window(len(finite)) + 1)
    if smoothed[0] - smoothed[least] <= _NOISE * noise or least < 2:
        return RateSuggestion(smoothed, "the loss does not fall by more than its noise", None, divergence)
    slopes = [smoothed[i + 1] - smoothed[i - 1] for i in range(1, least)]
    steepest = rates[1 + slopes.index(min(slopes))]
    limit = math.inf if divergence is None else divergence / 10
    return RateSuggestion(smoothed, RULE, steepest, divergence, min(steepest, limit))


def _clipped(losses: Sequence[float]) -> list[float]:
    """Returns the losses, at most as far above the first ones as the least is below them: otherwise those
    that diverge would reach into the averages before them."""
    if not losses:
        return []
    first = statistics.median(losses[:_FIRST])
    ceiling = first + abs(first - min(losses))
    return [min(loss, ceiling) for loss in losses]


def _smoothed(losses: Sequence[float]) -> list[float]:
    """Returns centred moving averages, which do not shift the curve; the window is cut at the ends."""
    half = _half_window(len(losses))
    return [statistics.fmean(losses[max(0, i - half) : i + half + 1]) for i in range(len(losses))]


def _half_window(num_losses: int) -> int:
    return max(1, num_losses // _WINDOW_SHARE)
