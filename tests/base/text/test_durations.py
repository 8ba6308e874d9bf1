"""Durations as text."""

from __future__ import annotations

import pytest

from roost.base.text.durations import format_age, format_duration, format_short_duration


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(None, ""), (7.12, "7.1s"), (249, "4m 09s"), (3600 * 3 + 300, "3h 05m"), (86400 + 7200, "1d 02h")],
)
def test_durations(seconds: float | None, shown: str) -> None:
    assert format_duration(seconds) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.0, "0 ms"), (0.0031416, "3.14 ms"), (0.999, "999 ms"), (0.9996, "1.0s"), (61, "1m 01s")],
)
def test_durations_below_a_second(seconds: float, shown: str) -> None:
    assert format_short_duration(seconds) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(-3, "now"), (0.2, "now"), (59.9, "59s ago"), (61, "1m ago"), (7200, "2h ago"), (86400 * 40, "40d ago")],
)
def test_ages(seconds: float, shown: str) -> None:
    assert format_age(seconds) == shown
