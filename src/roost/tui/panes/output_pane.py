"""A pane of output: lines that are added at the end, with their colours, wrapped to the width."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from rich.segment import Segment
from textual.events import Key
from textual.strip import Strip

from roost.tui.drawing import palette, styled_text
from roost.tui.panes.line_view import LineView

MAX_LINES = 20_000
"""Older lines are left out."""
_MAX_OPEN = 8 * styled_text.MAX_LINE_CHARACTERS


class OutputPane(LineView):
    """Output, of the server, of an analyzer, or of a run.

    Lines are kept as text, and turned into segments when they become visible. The end stays visible until
    it is scrolled up.
    """

    def __init__(self, id: str, title: str, empty: str = "") -> None:
        super().__init__(id, title)
        self._lines: deque[str] = deque(maxlen=MAX_LINES)
        self._open = ""
        """The last line, which has no end yet."""
        self._empty = empty
        self.search = ""
        """What is searched; lines that have it are highlighted."""
        self.is_following = True
        self._drawn_lines = 1
        self._hit = 0
        """The line that the search found last."""

    def set_empty_text(self, text: str) -> None:
        """Says what is shown without output."""
        self._empty = text
        self.lines_changed()

    def empty_text(self) -> str:
        """Returns what is said without output."""
        return self._empty

    def follows_at_end(self) -> bool:
        """New output stays visible at the end."""
        return True

    def clear(self) -> None:
        """Removes all lines."""
        self._lines.clear()
        self._open, self.is_following = "", True
        self.lines_changed()

    def write(self, text: str) -> None:
        """Adds output; it need not end with a line."""
        *lines, self._open = (self._open + text).split("\n")
        if len(self._open) > _MAX_OPEN:  # a progress bar, of which the last state counts; or an endless line
            self._open = self._open.rstrip("\r").rpartition("\r")[2][:_MAX_OPEN]
        self.write_lines(lines)

    def write_lines(self, lines: Iterable[str]) -> None:
        """Adds whole lines."""
        new = list(lines)
        dropped = max(0, len(self._lines) + len(new) - MAX_LINES)
        self._lines.extend(new)
        if not self.is_following:
            self.top = max(0, self.top - dropped)  # what is read stays in its place
        self.lines_changed()

    def text(self) -> str:
        """Returns all lines, without colours."""
        return "\n".join(styled_text.plain(one) for one in (*self._lines, *([self._open] * bool(self._open))))

    # A long line takes several rows. Lines are wrapped from the end as long as it is followed, else from
    # the first that is visible, so that wrapping costs only what is visible.

    def count(self) -> int:
        """Returns the number of lines."""
        return len(self._lines) + bool(self._open)

    def _draw(self) -> list[Strip]:
        if not self.count() or not self.follows_at_end():
            return super()._draw()
        width, height = self.size
        self._ground = self.rich_style
        head = self.header(width)
        rows = max(0, height - len(head))
        end, _ = self._first_of_the_end()
        if self.is_following or self.top > end:  # above the end, if the pane has become larger
            self.top = end
        found: list[Strip] = []
        used = 0
        for index in range(self.top, self.count()):
            if len(found) >= rows and not self.is_following:
                break
            found += styled_text.wrap(self.line(index, width), width)
            used += 1
        shown = found[max(0, len(found) - rows) :] if self.is_following else found[:rows]
        self._drawn_lines = used
        self._set_position(self.count(), used)
        return [*head, *shown, *([Strip.blank(width)] * (rows - len(shown)))]

    def _first_of_the_end(self, before: int | None = None, rows: int | None = None) -> tuple[int, bool]:
        """Returns the first line that is visible when the last one is, and whether its beginning is not.

        Args:
            before: The line after the last one; None: that of all lines.
            rows: The rows there are; None: those of the pane.
        """
        width = self.size.width
        index = self.count() if before is None else before
        left = self.visible_rows if rows is None else rows
        while index > 0 and left > 0:
            index -= 1
            left -= len(styled_text.wrap(self.line(index, width), width))
        return index, left < 0

    def scroll_by(self, lines: int) -> None:
        """Scrolls by lines, down for a positive number; at the end new lines stay visible."""
        if not self.follows_at_end():
            super().scroll_by(lines)
            return
        end, is_cut = self._first_of_the_end()
        top = max(0, self.top + lines)
        self.is_following = top >= end + is_cut and (lines > 0 or end == 0)
        self.top = min(top, end)
        self.lines_changed()

    def key_pagedown(self) -> None:
        """Moves down by a page."""
        self.move(max(1, self._drawn_lines - 1))

    key_ctrl_f = key_pagedown

    def key_pageup(self) -> None:
        """Moves up by a page."""
        if not self.follows_at_end():
            super().key_pageup()
            return
        top, _ = self._first_of_the_end(self.top + 1, self.visible_rows)
        self.move(min(-1, top - self.top))

    key_ctrl_b = key_pageup

    def line(self, index: int, width: int) -> Strip:
        """Returns a line."""
        text = self._open if index == len(self._lines) else self._lines[index]
        return self._strip(text)

    def _strip(self, text: str) -> Strip:
        strip = styled_text.output_strip(text)
        if self.search and self.search.casefold() in styled_text.plain(text).casefold():
            return self._highlight(strip)
        return strip

    def _highlight(self, strip: Strip) -> Strip:
        text, needle = strip.text, self.search.casefold()
        found = palette.style(
            self.palette.background, self.palette.marked, "b" if self.palette.marked else "r"
        )
        pieces: list[Strip] = []
        at = 0
        while (place := text.casefold().find(needle, at)) >= 0:
            begin, end = (Segment(text[:count]).cell_length for count in (place, place + len(needle)))
            pieces += [strip.crop(Segment(text[:at]).cell_length, begin)]
            pieces.append(Strip([Segment(text[place : place + len(needle)], found)]))
            at = place + len(needle)
            if end >= strip.cell_length:
                break
        pieces.append(strip.crop(Segment(text[:at]).cell_length, strip.cell_length))
        return Strip.join(pieces)

    def find(self, text: str, *, backwards: bool = True) -> bool:
        """Searches a text, and shows the nearest line that has it.

        Args:
            text: What is searched; empty ends the search.
            backwards: Towards older lines.

        Returns:
            Whether a line has it.
        """
        changed = text != self.search
        self.search = text
        if not text:
            self.lines_changed()
            return True
        lines = [styled_text.plain(one).casefold() for one in self._lines]
        hits = [number for number, line in enumerate(lines) if text.casefold() in line]
        if not hits:
            self.lines_changed()
            return False
        here = len(lines) if changed or self.is_following else self._hit
        before = [one for one in hits if one < here]
        after = [one for one in hits if one > here]
        target = (before[-1] if before else hits[-1]) if backwards else (after[0] if after else hits[0])
        self.is_following = False
        self.top, _ = self._first_of_the_end(target, self.visible_rows // 2)
        self._hit = target
        self.lines_changed()
        return True

    def key_n(self, event: Key) -> None:
        """Goes on with a search, towards older lines."""
        self._go_on(event, backwards=True)

    def key_upper_n(self, event: Key) -> None:
        """Goes on with a search, towards newer lines."""
        self._go_on(event, backwards=False)

    def _go_on(self, event: Key, *, backwards: bool) -> None:
        if self.search:  # otherwise the key is another one's
            event.stop()
            self.find(self.search, backwards=backwards)
