from __future__ import annotations

import pytest

from roost.train.reporting.throughput import ThroughputMeter


def test_the_first_look_only_begins() -> None:
    rate = ThroughputMeter()
    rate.update(5000, 100.0)  # a resumed run has samples already
    assert rate.per_second == 0.0
    rate.update(5001, 100.01)
    assert rate.per_second == 0.0, "too short to say"
    rate.update(5010, 100.1)
    assert rate.per_second == pytest.approx(100.0)


def test_follows_a_change_within_seconds() -> None:
    rate = ThroughputMeter()
    for number in range(101):
        rate.update(number * 10, number * 0.1)
    assert rate.per_second == pytest.approx(100.0)
    for number in range(1, 101):
        rate.update(1000 + number * 20, 10.0 + number * 0.1)
    assert rate.per_second == pytest.approx(200.0, rel=0.01)
