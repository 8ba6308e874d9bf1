"""Durations in words."""

from __future__ import annotations

import pytest

from roost.base.duration import duration


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(None, ""), (7.12, "7.1s"), (249, "4m 09s"), (3600 * 3 + 300, "3h 05m"), (86400 + 7200, "1d 02h")],
)
def test_durations(seconds: float | None, shown: str) -> None:
    assert duration(seconds) == shown
