"""A pane of lines: it renders the visible ones only, and repaints only those that have changed."""

from __future__ import annotations

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from roost.tui.drawing import palette
from roost.tui.drawing.palette import DARK, Palette

_WHEEL_LINES = 3


class LineView(Widget, can_focus=True):
    """Lines of a fixed height with a title and a position on the border.

    A pane overrides `count` and `line`, and calls `lines_changed` when what they return changes. There is no
    layout of children: 200 tasks that change cost 200 strings, of which 30 are drawn.
    """

    ALLOW_SELECT = False

    palette: Palette = DARK

    def __init__(self, id: str, title: str) -> None:
        super().__init__(id=id, classes="pane")
        self.border_title = title
        self.top = 0
        """The first line that is visible."""
        self.is_following = False
        """Whether the last line stays visible when lines are added."""
        self._shown: list[Strip] = []
        self._ground = Style()

    # --- what a pane overrides

    def count(self) -> int:
        """Returns the number of lines."""
        return 0

    def line(self, index: int, width: int) -> Strip:
        """Returns a line; its cells may be fewer or more than ``width``."""
        return Strip.blank(width)

    def header(self, width: int) -> list[Strip]:
        """Returns the lines above, which do not scroll."""
        return []

    def empty_text(self) -> str:
        """Returns what is said where there is no line."""
        return ""

    # --- drawing

    @property
    def visible_rows(self) -> int:
        """The lines that are visible at once."""
        return max(0, self.size.height - len(self.header(self.size.width)))

    def lines_changed(self) -> None:
        """Draws the lines that differ from what is shown."""
        if not self.is_mounted or not self.size:
            return
        found = self._draw()
        shown, self._shown = self._shown, found
        if len(shown) != len(found):
            self.refresh()
            return
        changed = [
            Region(0, y, self.size.width, 1)
            for y, (old, new) in enumerate(zip(shown, found, strict=True))
            if old is not new and old != new
        ]
        if changed:
            self.refresh(*changed)

    def render_line(self, y: int) -> Strip:
        """Returns a line of the screen."""
        if len(self._shown) != self.size.height:
            self._shown = self._draw()
        if y >= len(self._shown):
            return Strip.blank(self.size.width, self._ground)
        strip = self._shown[y]
        return strip.adjust_cell_length(self.size.width, self._ground).apply_style(self._ground)

    def _draw(self) -> list[Strip]:
        width, height = self.size
        self._ground = self.rich_style  # once: it is computed from all ancestors
        found = self.header(width)
        count, rows = self.count(), max(0, height - len(found))
        last = max(0, count - rows)
        self.top = last if self.is_following else min(max(0, self.top), last)
        shown = range(self.top, min(count, self.top + rows))
        if not count and rows and (text := self.empty_text()):
            lines = text.splitlines()
            found += [Strip.blank(width)] * max(0, (rows - len(lines)) // 2)
            dim = palette.style(self.palette.faint, attributes="" if self.palette.faint else "d")
            found += [Strip([Segment(one.center(width), dim)]) for one in lines]
        found += [self.line(index, width) for index in shown]
        self._set_position(count, rows)
        return [one.crop(0, width) for one in found[:height]] + [Strip.blank(width)] * (height - len(found))

    def _set_position(self, count: int, rows: int) -> None:
        if count <= rows:
            text = ""
        else:
            text = f"{self.top + 1}–{min(count, self.top + rows)} of {count:,}"
        if self.border_subtitle != text:
            self.border_subtitle = text

    # --- moving

    def scroll_by(self, lines: int) -> None:
        """Scrolls by lines, down for a positive number."""
        last = max(0, self.count() - self.visible_rows)
        self.top = min(last, max(0, self.top + lines))
        self.is_following = self.follows_at_end() and self.top == last
        self.lines_changed()

    def follows_at_end(self) -> bool:
        """Whether the pane follows new lines once it is scrolled to its end."""
        return False

    def move(self, lines: int) -> None:
        """Moves by lines; a pane with a selection moves that."""
        self.scroll_by(lines)

    def key_down(self) -> None:
        """Moves down."""
        self.move(1)

    key_j = key_down

    def key_up(self) -> None:
        """Moves up."""
        self.move(-1)

    key_k = key_up

    def key_pagedown(self) -> None:
        """Moves down by a page."""
        self.move(max(1, self.visible_rows - 1))

    key_ctrl_f = key_pagedown

    def key_pageup(self) -> None:
        """Moves up by a page."""
        self.move(-max(1, self.visible_rows - 1))

    key_ctrl_b = key_pageup

    def key_home(self) -> None:
        """Moves to the first line."""
        self.move(-self.count())

    key_g = key_home

    def key_end(self) -> None:
        """Moves to the last line."""
        self.move(self.count())

    key_upper_g = key_end

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Scrolls."""
        event.stop()
        self.scroll_by(_WHEEL_LINES)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Scrolls."""
        event.stop()
        self.scroll_by(-_WHEEL_LINES)

    def on_resize(self) -> None:
        """Draws anew."""
        self._shown = []
        self.refresh()
