"""F4: the queue. Running tasks, pending ones in their order, ended ones; a sweep is one line with a bar."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual import events
from textual.message import Message
from textual.strip import Strip

from roost.tui import queue_cells
from roost.tui.panes.line_view import LineView
from roost.tui.view_state import ViewState

if TYPE_CHECKING:
    from roost.operations.live_lab.lab_state import LabState


class TasksPane(LineView):
    """The list of tasks, with a selection.

    Args:
        view: The choices; the pane moves its selection.
    """

    class Selected(Message):
        """Another line was selected."""

    class Opened(Message):
        """The selected line was opened: Enter, or a double click."""

    def __init__(self, view: ViewState) -> None:
        super().__init__("tasks", "F4 Tasks")
        self.view = view
        self.numbers: dict[str, int] = {}
        self.empty = ""
        """What is said without tasks; nothing before the lab is known."""

    def show(self, lab: LabState) -> None:
        """Shows the tasks of a lab; `ViewState.refresh` has made the list."""
        self.empty = "no tasks" if lab.is_known else ""
        self.numbers = {card.id: card.status.number for card in lab.cards()}
        self._set_title(lab)
        self.lines_changed()

    def _set_title(self, lab: LabState) -> None:
        counts = lab.summary.counts
        words = [
            f"{counts[state]:,} {state}" for state in ("running", "pending", "failed") if counts.get(state)
        ]
        title = "F4 Tasks" + (f" · {', '.join(words)}" if words else "")
        if self.view.filter:
            title += f" · {'not applied: ' * bool(self.view.filter_error)}/{self.view.filter}"
        if self.border_title != title:
            self.border_title = title

    def count(self) -> int:
        """Returns the number of entries."""
        return len(self.view.entries)

    def header(self, width: int) -> list[Strip]:
        """Returns the names of the columns."""
        return [queue_cells.header(width, self.palette, self.view.sort)] if self.size.height > 3 else []

    def line(self, index: int, width: int) -> Strip:
        """Returns the line of an entry."""
        entry = self.view.entries[index]
        return queue_cells.entry_strip(
            entry, self.view, self.numbers, width, self.palette, focused=self.has_focus
        )

    def empty_text(self) -> str:
        """Returns what is said without tasks."""
        return "no task matches the filter; Esc removes it" if self.view.filter else self.empty

    def _draw(self) -> list[Strip]:
        rows = self.visible_rows
        if self.view.index < self.top:
            self.top = self.view.index
        elif self.view.index >= self.top + rows > 0:
            self.top = self.view.index - rows + 1
        return super()._draw()

    def move(self, lines: int) -> None:
        """Moves the selection."""
        self.view.move(lines)
        self.lines_changed()
        self.post_message(self.Selected())

    def scroll_by(self, lines: int) -> None:
        """Moves the selection, which is always visible."""
        self.move(lines)

    def on_click(self, event: events.Click) -> None:
        """Selects a line; a double click opens it, a click on the first column marks it."""
        offset = event.get_content_offset(self)
        if offset is None:
            return
        index = self.top + offset.y - len(self.header(self.size.width))
        if not 0 <= index < self.count():
            return
        self.view.move(index - self.view.index)
        if offset.x < 2:
            self.view.toggle_mark()
        self.lines_changed()
        self.post_message(self.Selected())
        if event.chain == 2:
            self.post_message(self.Opened())

    def on_focus(self) -> None:
        """Draws the selection with the focus."""
        self.lines_changed()

    def on_blur(self) -> None:
        """Draws the selection without the focus."""
        self.lines_changed()
