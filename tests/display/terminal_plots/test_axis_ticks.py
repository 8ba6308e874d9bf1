"""Round numbers on axes."""

from __future__ import annotations

import pytest

from roost.display.terminal_plots.axis_ticks import Axis, number_label, time_label


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0, 10, [0, 5, 10]),
        (0.3, 0.89, [0.4, 0.6, 0.8]),
        (-3, 7, [0, 5]),
        (0, 1e300, [0, 5e299, 1e300]),
    ],
)
def test_ticks_are_round_and_inside(low: float, high: float, ticks: list[float]) -> None:
    assert Axis(low, high).ticks(3) == pytest.approx(ticks)


def test_decades() -> None:
    assert Axis(0.002, 500, logarithmic=True).ticks(6) == pytest.approx([0.01, 0.1, 1, 10, 100])
    assert Axis(2, 5, logarithmic=True).ticks(3) == [2, 5], "without two decades inside, the ends"
    assert len(Axis(1e-300, 1e300, logarithmic=True).ticks(5)) <= 5


@pytest.mark.parametrize("logarithmic", [False, True])
@pytest.mark.parametrize("numbers", [[], [3.0], [3.0, 3.0], [1.0, 2.0], [1e-320, 1e300]])
def test_places_are_between_the_ends(numbers: list[float], logarithmic: bool) -> None:
    if logarithmic and not numbers:
        numbers = [1.0]
    axis = Axis.around(numbers, logarithmic=logarithmic)
    assert axis.ticks(4)
    assert all(-1e-9 <= axis.fraction(one) <= 1 + 1e-9 for one in numbers)


def test_the_ends_of_the_largest_range() -> None:
    axis = Axis.around([-1e300, 1e300])
    assert (axis.fraction(-1e300), axis.fraction(0), axis.fraction(1e300)) == (0, 0.5, 1)


def test_labels_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    for number, label in ((0.0, "0"), (1200.0, "1200"), (1e-5, "1e-5"), (-1.234567e100, "-1.235e100")):
        assert number_label(number) == label
    assert ":" in time_label(1.8e9, 3600) and "-" in time_label(1.8e9, 1e6)


def test_a_range_of_nearly_all_floats() -> None:
    axis = Axis.around([1.7976931348623157e308, -1.2023068651376847e308])
    ticks = axis.ticks(3)
    assert ticks and all(0 <= axis.fraction(one) <= 1 for one in ticks)
