"""A figure of matplotlib as the bytes of a file, in the style of all pictures."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from typing import Any

from roost.base.text.terminal_text import escape_control

AUTHOR = "roost plot"
"""In the metadata of a picture, by which it is recognised as one that may be replaced."""
KINDS = ("png", "svg", "pdf")
TEXT_COLOUR = "#1f2937"
_AUTHOR_FIELDS = {"png": "Software", "svg": "Creator", "pdf": "Creator"}
_MAX_LABEL_LENGTH = 60
_RC_PARAMS: dict[Any, Any] = {
    "font.size": 9,
    "axes.edgecolor": "#9ca3af",
    "axes.labelcolor": TEXT_COLOUR,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.grid": True,
    "grid.color": "#eef0f3",
    "xtick.color": "#6b7280",
    "ytick.color": "#6b7280",
    "legend.frameon": False,
    "legend.fontsize": 8,
    "legend.handlelength": 3.0,
    "svg.hashsalt": "roost",
}


def picture_bytes(draw: Callable[[Any], None], kind: str, width: float, height: float) -> bytes:
    """Returns a picture as the bytes of a file.

    Args:
        draw: Draws on a figure.
        kind: One of `KINDS`.
        width: In inches.
        height: In inches.
    """
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with mpl.rc_context(_RC_PARAMS), warnings.catch_warnings():
        # Characters that the font lacks (Chinese, emoji) are drawn as boxes; a warning would not help the
        # user.
        warnings.filterwarnings("ignore", r"Glyph .* missing from font")
        figure = Figure(figsize=(width, height), layout="constrained")
        canvas = FigureCanvasAgg(figure)
        draw(figure)
        buffer = io.BytesIO()
        canvas.print_figure(buffer, format=kind, dpi=150, metadata={_AUTHOR_FIELDS[kind]: AUTHOR})
    return buffer.getvalue()


def label_text(name: str) -> str:
    """Returns a name as a label of limited length; a long name keeps its beginning and its end."""
    text = escape_control(name.replace("\n", " ").replace("\t", " "))
    if len(text) > _MAX_LABEL_LENGTH:
        half = _MAX_LABEL_LENGTH // 2
        text = f"{text[:half]}…{text[1 - half :]}"
    return text.replace("$", r"\$")  # matplotlib would parse it as mathematics
