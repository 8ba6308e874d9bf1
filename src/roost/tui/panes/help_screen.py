"""`?`: all keys by what they are for."""

from __future__ import annotations

from rich.segment import Segment
from textual.app import ComposeResult
from textual.screen import ModalScreen
from textual.strip import Strip

from roost.tui import key_table
from roost.tui.drawing import palette
from roost.tui.drawing.palette import Palette
from roost.tui.drawing.styled_text import cell
from roost.tui.panes.line_view import LineView

_TWO_COLUMNS = 104


class HelpPane(LineView):
    """The keys."""

    def __init__(self, colours: Palette, *, is_read_only: bool) -> None:
        super().__init__("help", "Keys")
        self.palette = colours
        self._is_read_only = is_read_only
        self._lines: list[Strip] = []
        self._width = 0

    def count(self) -> int:
        """Returns the number of lines."""
        if self._width != self.size.width:
            self._width = self.size.width
            self._lines = self._make(self._width)
        return len(self._lines)

    def line(self, index: int, width: int) -> Strip:
        """Returns a line."""
        return self._lines[index]

    def _make(self, width: int) -> list[Strip]:
        colours = self.palette
        groups = [self._group(name) for name in key_table.GROUPS]
        if width >= _TWO_COLUMNS:
            left, right = [*groups[0], Strip([]), *groups[1]], [*groups[2], Strip([]), *groups[3]]
            half = width // 2
            lines = []
            for place in range(max(len(left), len(right))):
                parts = [one[place] if place < len(one) else Strip([]) for one in (left, right)]
                lines.append(Strip.join([parts[0].adjust_cell_length(half), parts[1]]))
        else:
            lines = [line for group in groups for line in (*group, Strip([]))]
        faint = palette.style(colours.faint)
        return [*lines, Strip([]), *(Strip([Segment(f"  {one}", faint)]) for one in key_table.MOVEMENT)]

    def _group(self, name: str) -> list[Strip]:
        colours = self.palette
        lines = [Strip([Segment(f"  {name}", palette.style(colours.accent, attributes="b"))])]
        for one in key_table.KEYS:
            if one.group == name and not (self._is_read_only and one.changes):
                lines.append(Strip([
                    cell(f"    {one.shown}", 12, palette.style(colours.text, attributes="b")),
                    Segment(one.text, palette.style(colours.text)),
                ]))  # fmt: skip
        return lines


class HelpScreen(ModalScreen[None]):
    """The keys, above everything; any key that does not scroll closes it."""

    BINDINGS = [("escape,q,question_mark,enter,space", "dismiss", "close")]  # noqa: RUF012

    def __init__(self, colours: Palette, *, is_read_only: bool) -> None:
        super().__init__()
        self._pane = HelpPane(colours, is_read_only=is_read_only)

    def compose(self) -> ComposeResult:
        """Yields the pane."""
        yield self._pane
