"""Counts as text."""

from __future__ import annotations

from roost.base.text.counts import format_cores


def test_cores() -> None:
    assert [format_cores(number) for number in (0, 1, 2)] == ["0 cores", "1 core", "2 cores"]
