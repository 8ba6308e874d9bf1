"""Why a task waits, or how it ended, with its history."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from roost.tui.drawing import palette, styled_text
from roost.tui.drawing.palette import Palette
from roost.tui.drawing.styled_text import cell

if TYPE_CHECKING:
    from roost.operations.task_results import TaskExplanation

_WHEN, _KIND = 16, 12


def lines(found: TaskExplanation, width: int, colours: Palette) -> list[Strip]:
    """Returns the lines of an explanation."""
    text, faint = palette.style(colours.text), palette.style(colours.faint)
    bold = palette.style(colours.text, attributes="b")

    def wrapped(given: str, style: Style, first: Sequence[Segment] = ()) -> list[Strip]:
        used = sum(one.cell_length for one in first)
        pieces = textwrap.wrap(styled_text.escape(given), max(20, width - used)) or [""]
        indents = [first, *[(cell("", used),)] * (len(pieces) - 1)]
        return [
            Strip([*indent, Segment(piece, style)]) for indent, piece in zip(indents, pieces, strict=True)
        ]

    shown = wrapped(f"{found.name}  {found.package}", faint) + wrapped(found.why, bold)
    if found.command:
        shown += wrapped("$ " + " ".join(found.command), text)
    shown.append(Strip([]))
    for event in found.events:
        when = time.strftime("%m-%d %H:%M:%S", time.localtime(event.at))
        kind = cell(styled_text.escape(event.kind), _KIND, palette.style(colours.accent))
        shown += wrapped(event.text, text, [cell(when, _WHEN, faint), kind])
    return shown
