"""A picture of the run, with its name and its place among the others."""

from __future__ import annotations

from rich.segment import Segment
from textual.strip import Strip

from roost.base.errors import RoostError
from roost.tui.drawing import palette, pictures, styled_text
from roost.tui.drawing.palette import Palette


def lines(
    data: bytes,
    path: str,
    place: tuple[int, int],
    width: int,
    height: int,
    colours: Palette,
    *,
    unicode: bool,
) -> list[Strip]:
    """Returns the lines of a picture.

    Args:
        data: The file.
        path: Its path in the package.
        place: Its number among the pictures, and how many there are.
        width: The cells of a line.
        height: The lines.
        colours: The palette.
        unicode: Whether half blocks can be shown.
    """
    faint = palette.style(colours.faint)
    title = Strip([
        Segment(styled_text.escape(path), palette.style(colours.text, attributes="b")),
        Segment(f"  {place[0]} of {place[1]}  , and . go through them", faint),
    ])  # fmt: skip
    try:
        draw = pictures.half_blocks if unicode and colours.text else pictures.shades
        drawn = draw(data, width, max(1, height - 2))
    except RoostError as error:
        return [title, Strip([Segment(styled_text.escape(str(error)), palette.style(colours.bad))])]
    except ImportError:
        return [
            title,
            Strip([Segment("pictures need Pillow: pip install pillow", palette.style(colours.waiting))]),
        ]
    return [title, Strip([]), *(Strip(one) for one in drawn)]
