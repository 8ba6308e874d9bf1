"""Exponential moving averages."""

from __future__ import annotations

import numpy as np
import pytest

from roost.operations.plots.smoothing import smooth


@pytest.mark.parametrize("factor", [0.0, 0.5, 0.9, 0.999])
def test_is_the_weighted_mean_so_far(factor: float) -> None:
    values = np.random.default_rng(0).normal(size=50)
    expected = []
    for end in range(1, 51):
        weights = factor ** np.arange(end)[::-1]
        expected.append((weights * values[:end]).sum() / weights.sum())
    np.testing.assert_allclose(smooth(values, factor), expected, rtol=1e-9)


def test_begins_at_the_first_value_and_keeps_a_constant() -> None:
    assert smooth(np.array([5.0, 5.0, 5.0]), 0.99) == pytest.approx([5.0, 5.0, 5.0])
    assert smooth(np.zeros(0), 0.9).tolist() == []
