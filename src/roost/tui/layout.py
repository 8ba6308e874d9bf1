"""Which views are on the screen, side by side or stacked, by the shape of the terminal; and their style."""

from __future__ import annotations

from typing import Literal, NamedTuple

PANES = ("tasks", "server", "devices", "run", "analyzer")
Shape = Literal["small", "compact", "tall", "wide"]
MIN_COLUMNS, MIN_ROWS = 60, 16
_WIDE_COLUMNS, _TALL_ROWS = 110, 44


class Arrangement(NamedTuple):
    """A layout."""

    shape: Shape
    visible: frozenset[str]
    """The panes on the screen."""
    devices_rows: int
    """With its border; 0: as much as there is."""
    output_rows: int
    """Of the outputs of server and analyzer, with their borders; 0: as much as there is."""


def arrange(columns: int, rows: int, *, front: str, is_zoomed: bool, device_lines: int) -> Arrangement:
    """Returns the layout for a size.

    Args:
        columns: Of the terminal.
        rows: Of the terminal.
        front: The pane that has, or had last, the focus.
        is_zoomed: Whether it is alone.
        device_lines: The lines of the devices pane.
    """
    if columns < MIN_COLUMNS or rows < MIN_ROWS:
        return Arrangement("small", frozenset(), 0, 0)
    if is_zoomed:
        return Arrangement("compact", frozenset({front}), 0, 0)
    body = rows - 3
    devices = min(device_lines + 2, max(4, body // 3))
    if columns >= _WIDE_COLUMNS and columns >= 2 * rows:
        return Arrangement("wide", frozenset(PANES), devices, max(5, body // 4))
    if rows >= _TALL_ROWS:
        return Arrangement("tall", frozenset(PANES), min(devices, body // 5 + 2), max(5, body // 7))
    visible = {front} if front not in ("tasks", "devices") else {"tasks", "devices"}
    if front == "devices":
        devices = min(device_lines + 2, body - 6)
    elif body < 2 * devices:
        devices = min(device_lines + 2, body // 3)
    return Arrangement("compact", frozenset(visible), devices, 0)


CSS = """
Screen { layers: base above; overflow: hidden; background: $background; color: $foreground; }
#status, #hints { height: 1; width: 100%; background: $panel; color: $foreground; }
#body { width: 100%; height: 1fr; layout: horizontal; }
.tall #body, .compact #body { layout: vertical; }
#left, #right { width: 1fr; height: 1fr; layout: vertical; }
.compact #left, .compact #right, .tall #left, .tall #right { width: 100%; }
.tall #right { height: 2fr; }
.pane { width: 100%; height: 1fr; border: round $pane-line; background: $background; padding: 0 1;
        border-title-color: $faint; border-subtitle-color: $faint; border-title-align: left; }
.pane:focus { border: round $primary; border-title-color: $primary; border-title-style: bold; }
#command { height: 1; width: 100%; background: $surface; }
#command-prompt { width: auto; padding: 0 1; color: $primary; text-style: bold; background: $surface; }
#command-input { width: 1fr; height: 1; border: none; padding: 0; background: $surface; color: $foreground; }
#small { display: none; width: 100%; height: 100%; content-align: center middle; text-align: center; }
.small #small { display: block; }
.small #status, .small #body, .small #command, .small #hints { display: none; }
HelpScreen { align: center middle; background: $background 60%; }
#help { width: 90%; max-width: 124; height: 90%; border: round $primary; }
"""
