"""No extreme value is lost."""

from __future__ import annotations

import numpy as np
import pytest

from roost.operations.plots.point_reduction import visible_points, visible_positions


def test_a_short_curve_is_whole() -> None:
    x = np.arange(40)
    assert visible_points(x, np.zeros(40), width=10).tolist() == list(range(40))


@pytest.mark.parametrize("seed", range(3))
def test_each_column_has_its_first_least_greatest_and_last(seed: int) -> None:
    draw = np.random.default_rng(seed)
    x = np.unique(draw.integers(0, 10**6, 20_000)).astype(float)
    y = draw.normal(size=len(x))
    places = visible_points(x, y, width=100)
    assert len(places) <= 400 and (np.diff(places) > 0).all()
    column = np.minimum(99, ((x - x[0]) / (x[-1] - x[0]) * 100).astype(int))
    kept = set(places.tolist())
    for number in range(1, 99):  # at the edges of columns rounding may move a point to the next one
        inside = np.flatnonzero(
            (column == number) & (np.abs((x - x[0]) / (x[-1] - x[0]) * 100 % 1 - 0.5) < 0.499)
        )
        if len(inside):
            assert inside[y[inside].argmin()] in kept or y[places].min() <= y[inside].min()
    assert y[places].min() == y.min() and y[places].max() == y.max()
    assert places[0] == 0 and places[-1] == len(x) - 1


def test_a_single_spike_among_a_million_stays() -> None:
    y = np.zeros(1_000_000)
    y[123_457] = 1e9
    assert 123_457 in visible_points(np.arange(len(y)), y).tolist()


def test_positions_are_bounded() -> None:
    assert visible_positions(np.arange(10)).tolist() == list(range(10))
    assert len(visible_positions(np.arange(10**6))) == 1000
    assert visible_positions(np.zeros(0)).tolist() == []
