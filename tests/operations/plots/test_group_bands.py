"""Means over runs."""

from __future__ import annotations

import numpy as np
import pytest

from roost.operations.plots.group_bands import mean_band


def curve(x: list[float], y: list[float]) -> tuple[np.ndarray, np.ndarray]:
    return np.array(x, float), np.array(y, float)


def test_mean_and_standard_deviation_of_the_sample() -> None:
    band = mean_band([curve([1, 2], [1, 4]), curve([1, 2], [3, 4]), curve([1, 2], [5, 4])], "std")
    assert band.mean.tolist() == [3, 4] and band.counts.tolist() == [3, 3]
    assert band.low.tolist() == [1, 4] and band.high.tolist() == [5, 4]


def test_the_extremes() -> None:
    band = mean_band([curve([1, 2], [1, 4]), curve([1, 2], [3, 8])], "min-max")
    assert (band.low.tolist(), band.high.tolist()) == ([1, 4], [3, 8])


def test_runs_of_different_length_and_steps() -> None:
    band = mean_band([curve([0, 10], [0, 10]), curve([5, 20], [5, 20]), curve([0, 10], [2, 12])], "std")
    assert band.x.tolist() == [0, 5, 10], "it ends where fewer than two have a value"
    assert band.counts.tolist() == [2, 3, 3]
    assert band.mean == pytest.approx([1, 17 / 3, 32 / 3]), "a curve is interpolated between its points"


def test_one_run_is_its_own_mean() -> None:
    band = mean_band([curve([1, 2, 3], [1, 5, 2])], "std")
    assert band.mean.tolist() == band.low.tolist() == band.high.tolist() == [1, 5, 2]


def test_of_long_runs_no_extreme_is_lost() -> None:
    x = np.arange(100_000.0)
    one, two = np.zeros(100_000), np.ones(100_000)
    one[55_555], two[77_777] = -100, 100
    band = mean_band([(x, one), (x, two)], "min-max")
    assert len(band.x) == 1000 and band.low.min() == -100 and band.high.max() == 100
    assert mean_band([(x, one), (x, two)], "std").mean.mean() == pytest.approx(0.5, abs=0.01)
