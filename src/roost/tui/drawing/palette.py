"""The colours of the client: dark, light, and none."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from typing import Literal, NamedTuple

from rich.style import Style

ThemeName = Literal["dark", "light", "plain"]


class Palette(NamedTuple):
    """Colours by what they are for. Those of curves are as in `roost.operations.plots.curve_styles`, which
    any colour vision distinguishes, but lighter on a dark background."""

    name: ThemeName
    background: str
    panel: str
    text: str
    faint: str
    line: str
    """Borders of panes without the focus."""
    accent: str
    """Borders of the pane with the focus, keys, titles."""
    selected: str
    """The background of the selected row."""
    marked: str
    good: str
    busy: str
    waiting: str
    bad: str
    curves: tuple[str, ...]


DARK = Palette(
    "dark", background="#0f141a", panel="#151c24", text="#d7dee6", faint="#7b8794", line="#33404d",
    accent="#6cb6ff", selected="#22324a", marked="#ffb454", good="#7fd88f", busy="#59c2ff",
    waiting="#e6c07b", bad="#ff7a7a",
    curves=("#59b4ff", "#ffb000", "#3dd6a3", "#e98ac0", "#f5e663", "#9ad8f7", "#ff8a5c", "#c3b1ff"),
)  # fmt: skip
LIGHT = Palette(
    "light", background="#fbfcfd", panel="#f1f4f7", text="#1c2530", faint="#69757f", line="#c3ccd4",
    accent="#0b62b8", selected="#d6e6f7", marked="#a85500", good="#1a7f37", busy="#0a69a8",
    waiting="#8a6100", bad="#c4262e",
    curves=("#0072b2", "#c46a00", "#00805c", "#b0508a", "#8a7a00", "#3187b0", "#c4450c", "#6b4fc0"),
)  # fmt: skip
PLAIN = Palette(
    "plain", background="", panel="", text="", faint="", line="", accent="", selected="", marked="", good="",
    busy="", waiting="", bad="", curves=("",),
)  # fmt: skip
"""Without colours: for NO_COLOR."""
PALETTES: Mapping[str, Palette] = {one.name: one for one in (DARK, LIGHT, PLAIN)}


def choose(wanted: str, environment: Mapping[str, str] = os.environ) -> Palette:
    """Returns the palette for a terminal.

    Args:
        wanted: ``dark``, ``light``, or ``auto``: by ``COLORFGBG``, which many terminals set; else dark.
        environment: NO_COLOR (see no-color.org) has priority over all.
    """
    if environment.get("NO_COLOR"):
        return PLAIN
    if wanted != "auto":
        return PALETTES[wanted]
    ground = environment.get("COLORFGBG", "").rpartition(";")[2]
    return LIGHT if ground.isdecimal() and int(ground) in (7, *range(9, 16)) else DARK


@cache
def style(colour: str = "", ground: str = "", attributes: str = "") -> Style:
    """Returns a style; empty colours are those of the terminal.

    Args:
        colour: The colour of the text.
        ground: The colour behind it.
        attributes: Of ``b`` (bold), ``d`` (dim), ``i`` (italic), ``r`` (reverse), ``u`` (underlined).
    """
    return Style(
        color=colour or None,
        bgcolor=ground or None,
        bold="b" in attributes or None,
        dim="d" in attributes or None,
        italic="i" in attributes or None,
        reverse="r" in attributes or None,
        underline="u" in attributes or None,
    )
