"""Which colours and dashes runs have."""

from __future__ import annotations

from roost.operations.plots.curve_styles import MOST_STYLES, PALETTE, RunStyle, assign_styles
from roost.operations.plots.run_labels import RunLabel


def test_forty_runs_differ() -> None:
    styles, legend = assign_styles([RunLabel(f"lr={n}", "") for n in range(40)])
    assert len(set(styles)) == MOST_STYLES == 40 == len(legend)
    assert all(not style.dash for style in styles[: len(PALETTE)]), "dashes when colours do not suffice"
    assert [RunStyle(key.colour, key.dash) for key in legend if key.colour is not None] == styles


def test_colours_differ_for_any_colour_vision() -> None:
    """Each two differ for protanopes and deuteranopes by more than 10 in CIELAB; 2.3 is just noticeable."""
    for matrix in DEFICIENCIES:
        seen = [lab(simulated(colour, matrix)) for colour in PALETTE]
        least = min(
            sum((a - b) ** 2 for a, b in zip(one, two, strict=True)) ** 0.5
            for number, one in enumerate(seen)
            for two in seen[:number]
        )
        assert least > 10, least


def test_seeds_share_a_colour_and_differ_by_dashes() -> None:
    labels = [RunLabel(f"lr={lr}", f"seed={seed}") for lr in range(8) for seed in range(5)]
    styles, legend = assign_styles(labels)
    assert len(set(styles)) == 40
    for at, label in enumerate(labels):
        assert styles[at].colour == int(label.setting[3:]) and styles[at].dash == int(label.seed[5:])
    assert [key.label for key in legend] == [
        *(f"lr={lr} (5 seeds)" for lr in range(8)), *(f"seed={seed}" for seed in range(5))
    ]  # fmt: skip
    assert [key.colour for key in legend[8:]] == [None] * 5


def test_more_seeds_or_settings_than_dashes_share_the_dash() -> None:
    for settings, seeds in ((8, 6), (9, 5)):
        labels = [RunLabel(f"lr={lr}", f"seed={seed}") for lr in range(settings) for seed in range(seeds)]
        styles, legend = assign_styles(labels)
        assert len(set(styles)) == settings == len(legend)


def test_seeds_of_the_only_setting() -> None:
    styles, legend = assign_styles([RunLabel("", f"seed={seed}") for seed in range(3)])
    assert styles == [RunStyle(0, 0), RunStyle(0, 1), RunStyle(0, 2)]
    assert [key.label for key in legend] == ["all runs (3 seeds)", "seed=0", "seed=1", "seed=2"]


# --- colour vision: Viénot, Brettel, Mollon (1999), and CIELAB ---------------------------------------------

DEFICIENCIES = (
    ((0.11238, 0.88762, 0.0), (0.11238, 0.88762, 0.0), (0.00401, -0.00401, 1.0)),
    ((0.29275, 0.70725, 0.0), (0.29275, 0.70725, 0.0), (-0.02234, 0.02234, 1.0)),
)
"""Protanopia and deuteranopia, for linear RGB."""


def simulated(colour: str, matrix: tuple[tuple[float, float, float], ...]) -> list[float]:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts]
    return [sum(a * b for a, b in zip(row, linear, strict=True)) for row in matrix]


def lab(rgb: list[float]) -> tuple[float, float, float]:
    r, g, b = (min(1.0, max(0.0, one)) for one in rgb)
    x = (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505
    y = 0.2126 * r + 0.7152 * g + 0.0722 * b
    z = (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089
    fx, fy, fz = (one ** (1 / 3) if one > 0.008856 else 7.787 * one + 16 / 116 for one in (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)
