"""What the losses of a ramp suggest, on curves whose answer is known."""

from __future__ import annotations

import math
import random

import pytest

from roost.worker.tuning.lr_suggestion import RULE, has_diverged, suggest
from tests.messages import Messages

RATES = [1e-7 * (10 / 1e-7) ** (step / 99) for step in range(100)]


def falling(rate: float, *, centre: float = 1e-2, low: float = 0.5, high: float = 2.5) -> float:
    """A loss that falls fastest, over the logarithm of the rate, at ``centre``."""
    return low + (high - low) / (1 + (rate / centre) ** 2)


def test_the_steepest_rate_is_suggested() -> None:
    losses = [falling(rate) for rate in RATES]
    found = suggest(RATES, losses)
    assert found.divergence is None and found.reason == RULE
    assert found.steepest is not None and 5e-3 < found.steepest < 2e-2
    assert found.suggestion == found.steepest


def test_noise_shifts_it_little() -> None:
    draw = random.Random(0)
    found = suggest(RATES, [falling(rate) + draw.gauss(0, 0.1) for rate in RATES])
    assert found.suggestion is not None and 2e-3 < found.suggestion < 5e-2


def test_it_is_at_most_a_tenth_of_the_rate_that_diverges() -> None:
    ramp = [rate for rate in RATES if rate < 3e-2]
    losses = [falling(rate) for rate in ramp] + [50.0, 60.0, 70.0]
    found = suggest(RATES, losses)
    assert found.divergence == RATES[len(losses) - 1] and found.suggestion == found.divergence / 10
    assert found.steepest is not None and found.suggestion < found.steepest


@pytest.mark.parametrize(
    "losses",
    [
        [2.3 + 0.1 * math.sin(7 * step) for step in range(100)],  # only noise
        [2.0 + 0.01 * step for step in range(100)],  # it rises from the beginning
        [2.0, 1.9, math.nan],  # it diverges at once
        [2.0] * 50 + [math.inf],
    ],
)
def test_without_a_fall_there_is_no_suggestion(losses: list[float], messages: Messages) -> None:
    found = suggest(RATES, losses)
    assert found.suggestion is None and found.steepest is None
    messages.check(found.reason)


def test_divergence() -> None:
    assert has_diverged([1.0, math.nan]) and has_diverged([math.inf]) and not has_diverged([])
    assert not has_diverged([1.0, 0.2, 0.1, 0.9]), "a single batch may be an outlier"
    assert not has_diverged([2.0, 0.2, 0.2, 0.2, 1.5, 1.5, 1.5]), "not above the first loss"
    assert has_diverged([1.0, 0.2, 0.2, 0.2, 1.5, 1.5, 1.5])
    assert has_diverged([-1.0, -5.0, -5.0, -5.0, 11.0, 11.0]) and not has_diverged([-1.0, -5.0, -4.0, -4.0])
