"""The lines of the tasks pane: cells of a task and of a sweep, for a width."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from roost.tui.drawing import palette, styled_text
from roost.tui.drawing.palette import Palette
from roost.tui.drawing.spark_line import bar, spark
from roost.tui.drawing.styled_text import cell
from roost.tui.view_state import ListEntry, ViewState, label

if TYPE_CHECKING:
    from roost.operations.live_lab.lab_state import LabSweep, LabTask

_GLYPHS = {
    "pending": "○", "starting": "◌", "running": "●", "stopping": "◌", "succeeded": "✓", "failed": "✗",
    "stopped": "■", "crashed": "✗",
}  # fmt: skip
_SWEEP_ORDER = ("succeeded", "running", "starting", "stopping", "failed", "crashed", "stopped", "pending")
_LABEL, _GUTTER = 6, 2
_STATE = 11
_WIDE = 76
"""From this width on states are words."""


def state_colour(state: str, colours: Palette) -> str:
    """Returns the colour of a state."""
    return {
        "succeeded": colours.good, "running": colours.busy, "starting": colours.busy,
        "stopping": colours.waiting, "stopped": colours.waiting, "pending": colours.faint,
        "failed": colours.bad, "crashed": colours.bad,
    }.get(state, colours.text)  # fmt: skip


def header(width: int, colours: Palette, sort: str | None) -> Strip:
    """Returns the line with the names of the columns."""
    style = palette.style(colours.faint, attributes="" if colours.faint else "u")
    name, state, cards, tail = _widths(width)
    order = f"  by {sort}" if sort else ""
    parts = [
        cell("", _GUTTER, style),
        cell("TASK", _LABEL, style),
        cell(f"NAME{order}", name, style),
        cell(" STATE" if state > 3 else "", state, style),
        cell("GPU", cards, style),
        cell("PROGRESS", tail, style),
    ]
    return Strip(parts)


def entry_strip(
    entry: ListEntry, view: ViewState, numbers: dict[str, int], width: int, colours: Palette, *, focused: bool
) -> Strip:
    """Returns the line of an entry.

    Args:
        entry: The entry.
        view: The choices: what is selected, marked, watched.
        numbers: The numbers of the cards by their ids.
        width: The cells of the line.
        colours: The palette.
        focused: Whether the pane has the focus.
    """
    ground = colours.selected if entry.id == view.selected else ""
    is_selected = entry.id == view.selected
    plain_select = "r" if is_selected and not colours.selected and focused else ""
    text = palette.style(colours.text, ground, plain_select)
    faint = palette.style(colours.faint, ground, plain_select)
    name_width, state_width, card_width, tail_width = _widths(width)
    gutter = _gutter(entry, view, colours, ground, plain_select, is_selected=is_selected)
    if entry.sweep is not None:
        sweep = entry.sweep
        fold = "▾ " if entry.id in view.expanded else "▸ "
        name = styled_text.escape(f"{fold}{entry.name}")
        count = f"{len(sweep.tasks)}×"
        parts = [
            *gutter,
            cell(f"{label(sweep.tasks[0])}+", _LABEL, faint),
            cell(styled_text.middle(name, name_width - 1), name_width, text),
            cell(f" {count}", state_width + card_width, faint),
            *_sweep_tail(sweep, tail_width, colours, ground, plain_select),
        ]
        return Strip(parts).adjust_cell_length(width, text)
    task = entry.task
    assert task is not None
    row = task.row
    state = palette.style(state_colour(row.state, colours), ground, plain_select)
    indent = "  " if entry.is_member else ""
    name = indent + styled_text.escape(entry.name)
    glyph = "‖" if row.held and row.state == "pending" else _GLYPHS.get(row.state, "·")
    word = f" {glyph} {'held' if row.held and row.state == 'pending' else row.state}"
    parts = [
        *gutter,
        cell(
            label(task), _LABEL, palette.style(colours.accent if colours.accent else "", ground, plain_select)
        ),
        cell(styled_text.middle(name, name_width - 1), name_width, text),
        cell(word if state_width > 3 else f" {glyph}", state_width, state),
        cell(_cards(task, numbers), card_width, faint),
        *_tail(task, tail_width, colours, ground, plain_select),
    ]
    return Strip(parts).adjust_cell_length(width, text)


def _gutter(
    entry: ListEntry, view: ViewState, colours: Palette, ground: str, more: str, *, is_selected: bool
) -> list[Segment]:
    bar_style = palette.style(colours.accent, ground, more)
    mark = " "
    style = palette.style(colours.marked, ground, more)
    if entry.id in view.marks:
        mark = "◆"
        number = view.marks.index(entry.id)
        style = palette.style(colours.curves[number % len(colours.curves)], ground, more)
    elif entry.task is not None and view.watched in (entry.id, label(entry.task)) and view.watched:
        mark = "◉"
    return [Segment("▌" if is_selected else " ", bar_style), Segment(mark, style)]


def _widths(width: int) -> tuple[int, int, int, int]:
    """Returns the widths of name, state, cards, and of the rest of the line."""
    state = _STATE + 2 if width >= _WIDE else 3
    cards = 5
    rest = width - _GUTTER - _LABEL - state - cards
    name = max(12, min(40, rest * 2 // 5))
    return name, state, cards, max(0, rest - name)


def _cards(task: LabTask, numbers: dict[str, int]) -> str:
    row = task.row
    if row.cards:
        return ",".join(str(numbers[card]) if card in numbers else "?" for card in row.cards)
    return f"{row.num_cards}×" if row.num_cards and row.state == "pending" else ""


def _tail(task: LabTask, width: int, colours: Palette, ground: str, more: str) -> list[Segment]:
    row = task.row
    faint = palette.style(colours.faint, ground, more)
    text = palette.style(colours.text, ground, more)
    now = time.time()
    if row.state == "pending":
        return _words(waiting_words(task, now), width, [text, faint])
    if row.state in ("running", "stopping", "starting"):
        return _running(task, width, colours, ground, more, now)
    took = short_duration(row.seconds(now))
    words = [took]
    if (metric := task.main_metric()) is not None and (value := task.metric(metric)) is not None:
        words.append(f"{styled_text.escape(metric)} {format_value(value)}")
    if row.reason:
        words.append(styled_text.escape(row.reason))
    return _words(words, width, [faint, text, faint])


def waiting_words(task: LabTask, now: float) -> list[str]:
    """Returns the position of a pending task, its expected start, and why it waits."""
    words = []
    if task.position is not None and not task.row.held:
        words.append(f"#{task.position + 1}")
    if task.expected_start is not None:
        wait = task.expected_start - now
        words.append("starts soon" if wait <= 0 else f"in ~{short_duration(wait)}")
    if task.row.reason:
        words.append(styled_text.escape(task.row.reason))
    return words or ["waits"]


def _words(words: Sequence[str], width: int, styles: Sequence[Style]) -> list[Segment]:
    found: list[Segment] = []
    left = width
    for number, word in enumerate(words):
        style = styles[min(number, len(styles) - 1)]
        gap = "  " if number < len(words) - 1 else ""
        size = Segment(word + gap).cell_length
        if size >= left or not gap:
            found.append(cell(word, left, style))
            return found
        found.append(Segment(word + gap, style))
        left -= size
    found.append(cell("", left, styles[-1]))
    return found


def _running(
    task: LabTask, width: int, colours: Palette, ground: str, more: str, now: float
) -> list[Segment]:
    """Returns bar, per cent, remaining time, newest value and spark-line of a running task, as far as they
    fit."""
    row = task.row
    faint = palette.style(colours.faint, ground, more)
    text = palette.style(colours.text, ground, more)
    busy = palette.style(colours.busy, ground, more)
    fraction = task.progress.fraction if task.progress is not None else None
    if fraction is None and row.step is not None and row.total_steps:
        fraction = row.step / row.total_steps
    found: list[Segment] = []
    left = width
    if fraction is not None:
        size = 10 if width >= 30 else 6
        found += [*bar([(fraction, busy)], size, faint), cell(f"{min(fraction, 1):4.0%}", 6, text)]
        left -= size + 6
    elif row.step is not None:
        found.append(cell(f"step {row.step:,} ", 16, text))
        left -= 16
    took = f"{short_duration(row.left)} left" if row.left is not None else short_duration(row.seconds(now))
    if left >= 6:
        size = min(left, 12 if left >= 40 else 6)
        found.append(cell(took if size > 6 else took.partition(" ")[0], size, faint))
        left -= size
    metric = task.main_metric()
    value = task.metric(metric) if metric is not None else None
    if metric is not None and value is not None and left >= 6:
        size = min(left, 8)
        found.append(cell(format_value(value), size, text))
        left -= size
        history = task.histories.get(metric)
        if history is not None and left >= 6:
            size = min(left, 16)
            line = spark(history.values, size)
            found.append(cell(line, size, palette.style(colours.curves[0], ground, more)))
            left -= size
        if left >= 12:
            found.append(cell(f" {styled_text.escape(metric)}", left, faint))
            left = 0
    found.append(cell("", max(0, left), faint))
    return found


def _sweep_tail(sweep: LabSweep, width: int, colours: Palette, ground: str, more: str) -> list[Segment]:
    counts = sweep.sweep.counts
    total = sum(counts.values()) or 1
    faint = palette.style(colours.faint, ground, more)
    size = max(8, min(24, width // 2))
    parts = [
        (counts[state] / total, palette.style(state_colour(state, colours), ground, more))
        for state in _SWEEP_ORDER
        if counts.get(state) and state != "pending"
    ]
    ended = sum(
        count for state, count in counts.items() if state in ("succeeded", "failed", "crashed", "stopped")
    )
    words = [f" {ended}/{total}"]
    if running := counts.get("running", 0):
        words.append(f"{running} run")
    if failed := counts.get("failed", 0) + counts.get("crashed", 0):
        words.append(f"{failed} failed")
    styles = [palette.style(colours.text, ground, more), faint]
    return [*bar(parts, size, faint), *_words(words, max(0, width - size), styles)]


def short_duration(seconds: float) -> str:
    """Returns a duration in at most five characters: ``42s``, ``30m``, ``1h05``, ``2d3h``."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02}"
    days, hours = whole // 86400, whole % 86400 // 3600
    return f"{days}d{hours}h" if days < 10 else f"{days}d"


def format_value(value: float) -> str:
    """Returns a metric's value in a few characters: seven, or nine of one with a long exponent."""
    text = f"{value:.4g}"
    return text if len(text) <= 7 else f"{value:.1e}".replace("e+0", "e").replace("e-0", "e-")
