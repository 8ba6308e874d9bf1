"""The table of tasks: `roost tasks`, and the same in the shells."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Literal

from roost.display import table, terminal
from roost.display.table import Narrowing, TableColumn
from roost.operations.live_lab.task_cells import TaskCells, sweep_cells, task_cells
from roost.operations.task_results import Sweep, TaskRow

_HEADER = ("ID", "TASK", "NAME", "STATE", "CARDS", "MEMORY", "HOST", "TIME", "PROGRESS", "PRIORITY", "REASON")
_LEFT_OUT = (
    (40, (("MEMORY",), ("HOST",), ("PRIORITY",), ("CARDS",))),
    (16, (("PROGRESS",), ("TIME",))),
)
"""Columns that are left out on a narrow terminal, in this order, until so many characters of the last column
are visible."""
_BAR_CHARACTERS = 10
_BY_ATTENTION = ("crashed", "failed", "running", "starting", "stopping", "stopped", "pending", "succeeded")


def format_tasks(
    rows: Sequence[TaskRow | Sweep], now: float, numbers: Mapping[str, int], width: int | None
) -> list[str]:
    """Returns the lines of the table.

    Args:
        rows: The tasks, at least one; a sweep may be one row.
        now: Unix seconds.
        numbers: The numbers of the cards of this machine, by id.
        width: Of the terminal; None: no limit.
    """
    found = [
        sweep_cells(row, now) if isinstance(row, Sweep) else task_cells(row, now, numbers) for row in rows
    ]
    cells = [(*one[:8], _progress(one), *one[9:11]) for one in found]
    columns: dict[str, Sequence[str]] = dict(zip(_HEADER, zip(*cells, strict=True), strict=True))
    if terminal.allows_colours(sys.stdout):
        columns["STATE"] = [format_states(state) for state in columns["STATE"]]
    name_width = min((width or 0) // 4, max(map(len, columns["NAME"])))
    shortened: dict[str, tuple[int, Literal["middle", "wrapped"]]] = {
        "NAME": (name_width, "middle"),
        "REASON": (_LEFT_OUT[-1][0], "wrapped"),
    }
    return table.format_columns(
        [TableColumn(name, texts, *shortened.get(name, ())) for name, texts in columns.items()],
        width,
        narrowing=[Narrowing(name_width + visible, groups) for visible, groups in _LEFT_OUT],
    )


def format_states(text: str) -> str:
    """Returns the state of a task, or the counts of a sweep, in the colour of the state that needs most
    attention."""
    state = next((one for one in _BY_ATTENTION if one in text), text)
    return terminal.format_state(state, text)


def _progress(cells: TaskCells) -> str:
    """Returns the progress, on a terminal with a bar before it."""
    if cells.part is None or not sys.stdout.isatty():
        return cells.progress
    return f"{table.format_bar(cells.part, _BAR_CHARACTERS)} {cells.progress}"
