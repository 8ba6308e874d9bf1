"""Settings and newest metrics: of one run all, of marked runs those that differ, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from textual.strip import Strip

from roost.tui.drawing import palette, styled_text
from roost.tui.drawing.palette import Palette
from roost.tui.drawing.styled_text import cell
from roost.tui.queue_cells import format_value
from roost.tui.view_state import label

if TYPE_CHECKING:
    from roost.operations.live_lab.lab_state import LabTask

_NAME = 30


def lines(tasks: Sequence[LabTask], width: int, colours: Palette) -> list[Strip]:
    """Returns a table: a row for each setting and metric, a column for each run."""
    if not tasks:
        return []
    name_width = min(_NAME, width // 3)
    column = max(8, (width - name_width) // len(tasks))
    text, faint = palette.style(colours.text), palette.style(colours.faint)
    bold = palette.style(colours.accent, attributes="b")
    found = []
    if len(tasks) > 1:
        heads = [
            cell(f"{label(task)} {styled_text.middle(styled_text.escape(task.row.name), column - 8)}", column,
                 palette.style(colours.curves[number % len(colours.curves)], attributes="b"))
            for number, task in enumerate(tasks)
        ]  # fmt: skip
        found.append(Strip([cell("", name_width), *heads]))
    rows = _metric_rows(tasks)
    if rows:
        found.append(Strip([cell("newest metrics", width, bold)]))
    for name, values in rows:
        found.append(Strip([cell(f"  {styled_text.escape(name)}", name_width, faint),
                            *(cell(one, column, text) for one in values)]))  # fmt: skip
    settings, equal = _setting_rows(tasks)
    what = "settings" if len(tasks) == 1 else f"settings that differ ({equal} are equal)"
    found.append(Strip([cell(what, width, bold)]))
    for name, values in settings:
        found.append(Strip([cell(f"  {styled_text.escape(name)}", name_width, faint),
                            *(cell(one, column, text) for one in values)]))  # fmt: skip
    return found


def _metric_rows(tasks: Sequence[LabTask]) -> list[tuple[str, list[str]]]:
    names = list(dict.fromkeys(name for task in tasks for name in task.metric_names()))
    rows = []
    for name in names:
        values = [task.metric(name) for task in tasks]
        rows.append((name, ["–" if value is None else format_value(value) for value in values]))
    return rows


def _setting_rows(tasks: Sequence[LabTask]) -> tuple[list[tuple[str, list[str]]], int]:
    names = sorted(set[str]().union(*(task.settings for task in tasks)))
    rows, equal = [], 0
    for name in names:
        values = [task.settings.get(name) for task in tasks]
        if len(tasks) > 1 and all(one == values[0] for one in values):
            equal += 1
            continue
        rows.append((name, [_text(one) for one in values]))
    return rows, equal


def _text(value: Sequence[Any] | None) -> str:
    if value is None:
        return "–"
    words = [
        "none" if one is None else str(one).lower() if isinstance(one, bool) else str(one) for one in value
    ]
    return styled_text.escape(", ".join(words))
