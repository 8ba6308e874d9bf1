"""The picture of a learning-rate range test: the loss at each learning rate."""

from __future__ import annotations

from typing import Any

from roost.operations.plots.curve_styles import PALETTE
from roost.operations.plots.picture_file import TEXT_COLOUR, picture_bytes
from roost.operations.plots.setting_points import SettingAxis, SettingPoints
from roost.package.results.tuning_report import RangeTestFinding

_INCHES = (6.4, 3.6)
_DIVERGED_COLOUR = "#dc2626"
_MARGIN = 0.2
"""Shown above and below the part of the curve that falls, as a share of its height."""


def draw_range_test(found: RangeTestFinding, kind: str) -> bytes:
    """Returns the picture as the bytes of a file of a kind: png, svg or pdf."""

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        axes.set_title(f"learning-rate range test of {found.optimizer}")
        axes.plot(found.rates, found.losses, color=PALETTE[0], alpha=0.3, linewidth=1.0)
        axes.plot(found.rates, found.smoothed, color=PALETTE[0], linewidth=1.8, label="loss, smoothed")
        for rate, label, colour, style in (
            (found.present, "config", TEXT_COLOUR, ":"),
            (found.steepest, "falls fastest", PALETTE[2], "--"),
            (found.divergence, "diverges", _DIVERGED_COLOUR, "--"),
            (found.suggestion, "suggestion", PALETTE[1], "-"),
        ):
            if rate is not None:
                axes.axvline(rate, color=colour, linestyle=style, linewidth=1.2, label=f"{label} {rate:.2g}")
        axes.set_xscale("log")
        axes.set_xlabel("learning rate")
        axes.set_ylabel("loss")
        if found.smoothed:
            # A diverging loss would press the rest of the curve onto the axis.
            low = min(found.smoothed)
            high = max(found.smoothed[: found.smoothed.index(low) + 1])
            margin = _MARGIN * (high - low) or 1.0
            axes.set_ylim(low - margin, high + margin)
        figure.legend(loc="outside right upper")

    return picture_bytes(draw, kind, *_INCHES)


def rate_points(found: RangeTestFinding) -> SettingPoints:
    """Returns the smoothed losses at their rates, for a plot in the terminal."""
    return SettingPoints(
        runs=[],
        keys=[SettingAxis("learning rate", found.rates, [], logarithmic=True)],
        metrics=[SettingAxis("loss", found.smoothed, [], logarithmic=False)],
        left_out=[],
        notes=[],
    )
