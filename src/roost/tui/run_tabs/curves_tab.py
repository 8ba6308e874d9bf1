"""Curves of a run, or of all marked runs over each other: a panel for each quantity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from textual.strip import Strip

from roost.tui.drawing import curve_panel
from roost.tui.drawing.curve_panel import CurvePanel, PanelCurve
from roost.tui.drawing.palette import Palette
from roost.tui.run_tabs.run_data import Curve
from roost.tui.view_state import ViewState, label

if TYPE_CHECKING:
    from roost.operations.live_lab.lab_state import LabTask

_PANEL_WIDTH, _PANEL_HEIGHT, _LOW_HEIGHT = 46, 9, 6
MOST_METRICS = 12


def metric_names(tasks: Sequence[LabTask], view: ViewState) -> list[str]:
    """Returns the metrics that are shown, of the first task that has any."""
    for task in tasks:
        if found := view.shown_metrics(task, MOST_METRICS):
            return found
    return []


def panels(
    tasks: Sequence[LabTask], view: ViewState, recorded: Mapping[str, Mapping[str, Curve]]
) -> list[CurvePanel]:
    """Returns the panels.

    Args:
        tasks: The tasks; several are drawn over each other.
        view: The chosen metrics.
        recorded: By task and metric the recorded curve; where there is none, what was pushed is drawn.
    """
    by_quantity: dict[str, list[str]] = {}
    for name in metric_names(tasks, view):
        by_quantity.setdefault(name.rpartition("/")[2] if len(tasks) == 1 else name, []).append(name)
    found = []
    for quantity, names in by_quantity.items():
        curves = []
        for number, task in enumerate(tasks):
            for place, name in enumerate(names):
                curve = _curve(task, name, recorded)
                if curve is None:
                    continue
                colour = number if len(tasks) > 1 else place
                title = f"{label(task)}" if len(tasks) > 1 else name
                curves.append(PanelCurve(title, curve.x, curve.y, colour))
        if curves:
            title = names[0] if len(names) == 1 else quantity
            found.append(CurvePanel(title, curves))
    return found


def _curve(task: LabTask, name: str, recorded: Mapping[str, Mapping[str, Curve]]) -> Curve | None:
    found = recorded.get(task.id, {}).get(name)
    history = task.histories.get(name)
    if found is None:
        return (
            Curve([*map(float, history.steps)], history.values)
            if history is not None and history.steps
            else None
        )
    if history is None or not history.steps or not found.x or history.steps[-1] <= found.x[-1]:
        return found
    newer = [(float(s), v) for s, v in zip(history.steps, history.values, strict=True) if s > found.x[-1]]
    return Curve([*found.x, *(s for s, _ in newer)], [*found.y, *(v for _, v in newer)])


def grid(count: int, width: int, height: int) -> tuple[int, int]:
    """Returns how many panels are beside and below each other; further ones are reached by scrolling."""
    beside = max(1, min(width // _PANEL_WIDTH, count))
    needed = -(-count // beside)
    if needed * _LOW_HEIGHT <= height:
        return beside, needed
    return beside, max(1, height // _PANEL_HEIGHT)


def lines(
    found: Sequence[CurvePanel],
    width: int,
    height: int,
    colours: Palette,
    *,
    unicode: bool,
    logarithmic: bool,
) -> list[Strip]:
    """Returns the lines of all panels."""
    if not found or height < 4:
        return []
    beside, below = grid(len(found), width, height)
    panel_width, panel_height = width // beside - (beside > 1), max(6, height // below)
    rows: list[Strip] = []
    for at in range(0, len(found), beside):
        drawn = [
            curve_panel.draw(
                one, panel_width, panel_height, colours, unicode=unicode, logarithmic=logarithmic
            )
            for one in found[at : at + beside]
        ]
        for parts in zip(*drawn, strict=True):
            rows.append(Strip.join([part.adjust_cell_length(panel_width + 1) for part in parts]))
    return rows
