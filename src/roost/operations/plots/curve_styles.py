"""Colours and dashes: forty runs or settings have one of eight colours and five dashes each.

The colours are those of Okabe and Ito (jfly.uni-koeln.de/color), which people with any colour vision
distinguish, without their yellow, which is too pale for a line on white, and two dark ones of Tol.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from roost.operations.plots.run_labels import RunLabel

PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#332288", "#882255")
NUM_DASHES = 5
MOST_STYLES = len(PALETTE) * NUM_DASHES


@dataclass(frozen=True)
class RunStyle:
    """The look of the curves of a run: a place in the palette and one among the dashes."""

    colour: int
    dash: int


@dataclass(frozen=True)
class LegendKey:
    """An entry of the legend."""

    label: str
    colour: int | None
    """None: grey, an entry for dashes alone."""
    dash: int


def assign_styles(labels: Sequence[RunLabel]) -> tuple[list[RunStyle], list[LegendKey]]:
    """Returns the style of each run and the legend.

    Runs that differ only in their seed share a colour. They have a dash for each seed, if colours suffice for
    the settings and dashes for the seeds; else they share the dash, too.
    """
    settings = list(dict.fromkeys(one.setting for one in labels))
    seeds = list(dict.fromkeys(one.seed for one in labels))
    counts = Counter(one.setting for one in labels)
    if len(settings) == len(labels):
        styles = [_style(number) for number in range(len(labels))]
        keys = [
            LegendKey(one.text, style.colour, style.dash) for one, style in zip(labels, styles, strict=True)
        ]
        return styles, keys[:MOST_STYLES]
    by_seed = len(settings) <= len(PALETTE) and len(seeds) <= NUM_DASHES
    of_setting = {setting: _style(number) for number, setting in enumerate(settings)}
    styles = [of_setting[one.setting] for one in labels]
    if by_seed:
        styles = [
            replace(style, dash=seeds.index(one.seed)) for one, style in zip(labels, styles, strict=True)
        ]
    keys = [
        LegendKey(f"{setting or 'all runs'} ({counts[setting]} seeds)", style.colour, style.dash)
        for setting, style in list(of_setting.items())[:MOST_STYLES]
    ]
    if by_seed:
        keys += [LegendKey(seed or "no seed", None, number) for number, seed in enumerate(seeds)]
    return styles, keys


def _style(number: int) -> RunStyle:
    return RunStyle(number % len(PALETTE), number // len(PALETTE) % NUM_DASHES)
