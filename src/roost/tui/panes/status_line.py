"""The first line: whose lab, the connection, the counts; and the last line: keys, or a message."""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment
from textual.strip import Strip
from textual.widget import Widget

from roost.tui.drawing import palette
from roost.tui.drawing.palette import DARK, Palette


class StatusLine(Widget):
    """One line: parts at the left, parts at the right, which give way, the first ones before the others."""

    ALLOW_SELECT = False
    palette: Palette = DARK

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self._left: Sequence[tuple[str, str, str]] = ()
        self._right: Sequence[tuple[str, str, str]] = ()

    def show(self, left: Sequence[tuple[str, str, str]], right: Sequence[tuple[str, str, str]] = ()) -> None:
        """Shows parts: text, colour, attributes as of `roost.tui.drawing.palette.style`."""
        if (left, right) != (self._left, self._right):
            self._left, self._right = left, right
            self.refresh()

    def render_line(self, y: int) -> Strip:
        """Returns the line."""
        width = self.size.width
        left = Strip([Segment(text, palette.style(colour, "", more)) for text, colour, more in self._left])
        parts = [Segment(text, palette.style(colour, "", more)) for text, colour, more in self._right]
        while parts and left.cell_length + sum(one.cell_length for one in parts) >= width:
            del parts[0]
        right = Strip(parts)
        free = width - left.cell_length - right.cell_length
        line = Strip.join([left, Strip([Segment(" " * max(0, free))]), right])
        if line.text[width:].strip():
            line = Strip.join([line.crop(0, width - 1), Strip([Segment("…")])])
        return line.adjust_cell_length(width).apply_style(self.rich_style)
