from __future__ import annotations

import pytest

from roost.operations.tuning.rate_picture import draw_range_test, rate_points
from roost.package.results.tuning_report import RangeTestFinding

FOUND = RangeTestFinding(
    optimizer="main",
    present=0.1,
    rates=[1e-3, 1e-2, 1e-1],
    losses=[2.0, 1.0, 3.0],
    smoothed=[2.0, 1.5, 2.0],
    reason="",
    steepest=0.01,
    divergence=0.3,
    suggestion=0.01,
)
NOTHING = RangeTestFinding(optimizer="main", present=0.1, rates=[], losses=[], smoothed=[], reason="")


@pytest.mark.parametrize("found", [FOUND, NOTHING])
def test_the_picture(found: RangeTestFinding) -> None:
    assert draw_range_test(found, "png").startswith(b"\x89PNG")


def test_the_points_for_a_terminal() -> None:
    points = rate_points(FOUND)
    assert points.keys[0].logarithmic and points.metrics[0].positions == FOUND.smoothed
