"""The selected run: tabs with curves, log, system, pictures, settings, why, and the comparison of marks."""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment
from textual import events
from textual.message import Message
from textual.strip import Strip

from roost.tui.drawing import palette
from roost.tui.panes.output_pane import OutputPane
from roost.tui.view_state import RUN_TABS, RunTab, ViewState


class RunPane(OutputPane):
    """A line of tabs, and below it the lines of the chosen one. The log is an `OutputPane`; the other tabs
    are lines that were drawn elsewhere.

    Args:
        view: The choices; a click on a tab changes its tab.
    """

    class TabChosen(Message):
        """Another tab was clicked."""

        def __init__(self, tab: RunTab) -> None:
            super().__init__()
            self.tab = tab

    class Resized(Message):
        """The lines are to be drawn for another size."""

    def __init__(self, view: ViewState) -> None:
        super().__init__("run", "Run")
        self.view = view
        self._content: Sequence[Strip] = ()
        self._message = ""

    @property
    def is_log(self) -> bool:
        """Whether the log is shown."""
        return self.view.tab == "log"

    def show_lines(self, content: Sequence[Strip], message: str = "") -> None:
        """Shows lines in place of those before.

        Args:
            content: The lines.
            message: What is said where there are none.
        """
        self._content, self._message = content, message
        self.lines_changed()

    def tabs(self) -> list[RunTab]:
        """Returns the tabs that there are: the comparison only with several marks."""
        return [one for one in RUN_TABS if one != "compare" or len(self.view.marks) > 1]

    def header(self, width: int) -> list[Strip]:
        """Returns the line of the tabs."""
        colours = self.palette
        parts: list[Segment] = []
        for tab in self.tabs():
            chosen = tab == self.view.tab
            style = (
                palette.style(colours.accent, attributes="bu")
                if chosen
                else palette.style(colours.faint, attributes="")
            )
            parts += [Segment(f" {self._word(tab, width)} ", style), Segment(" ")]
        return [Strip(parts)]

    def _word(self, tab: RunTab, width: int) -> str:
        """Returns the word on a tab: four letters of it where not all words fit in their whole length."""
        words = {one: one.capitalize() for one in self.tabs()}
        if self.view.rank:
            words["log"] = f"Log {self.view.rank}"
        fits = sum(len(word) + 3 for word in words.values()) <= width
        return words[tab] if fits or tab == "log" else words[tab][:4]

    def count(self) -> int:
        """Returns the number of lines."""
        return super().count() if self.is_log else len(self._content)

    def line(self, index: int, width: int) -> Strip:
        """Returns a line."""
        return super().line(index, width) if self.is_log else self._content[index]

    def empty_text(self) -> str:
        """Returns what is said without lines."""
        return super().empty_text() if self.is_log else self._message

    def follows_at_end(self) -> bool:
        """Only the log follows its end."""
        return self.is_log

    def _draw(self) -> list[Strip]:
        if not self.is_log:
            self.is_following = False
        return super()._draw()

    def tab_begins(self) -> None:
        """Begins a tab at its top; the log at its end."""
        self.top, self.is_following, self._content = 0, self.is_log, ()

    def on_click(self, event: events.Click) -> None:
        """Chooses a tab."""
        offset = event.get_content_offset(self)
        if offset is None or offset.y != 0:
            return
        at = 0
        for tab in self.tabs():
            size = len(self._word(tab, self.size.width)) + 3
            if at <= offset.x < at + size:
                self.post_message(self.TabChosen(tab))
                return
            at += size

    def on_resize(self) -> None:
        """Has the lines drawn for the new size."""
        super().on_resize()
        self.post_message(self.Resized())
