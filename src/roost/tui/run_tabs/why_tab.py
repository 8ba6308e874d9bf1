"""Why a task waits, or how it ended, with its history."""

from __future__ import annotations

import textwrap
import time
from typing import TYPE_CHECKING

from rich.segment import Segment
from textual.strip import Strip

from roost.tui.drawing import palette, styled_text
from roost.tui.drawing.palette import Palette
from roost.tui.drawing.styled_text import cell

if TYPE_CHECKING:
    from roost.operations.task_results import TaskExplanation


def lines(found: TaskExplanation, width: int, colours: Palette) -> list[Strip]:
    """Returns the lines of an explanation."""
    text, faint = palette.style(colours.text), palette.style(colours.faint)
    bold = palette.style(colours.text, attributes="b")
    shown = [Strip([Segment(styled_text.escape(f"{found.name}  {found.package}"), faint)])]
    shown += [
        Strip([Segment(one, bold)]) for one in textwrap.wrap(styled_text.escape(found.why), max(20, width))
    ]
    if found.command:
        shown.append(Strip([Segment("$ " + styled_text.escape(" ".join(found.command)), text)]))
    shown.append(Strip([]))
    for event in found.events:
        when = time.strftime("%m-%d %H:%M:%S", time.localtime(event.at))
        shown.append(Strip([
            cell(when, 16, faint),
            cell(styled_text.escape(event.kind), 12, palette.style(colours.accent)),
            Segment(styled_text.escape(event.text), text),
        ]))  # fmt: skip
    return shown
