"""What cards, processes and host of a session did: a spark-line, the newest value, the peak."""

from __future__ import annotations

from rich.segment import Segment
from textual.strip import Strip

from roost.tui.drawing import palette
from roost.tui.drawing.palette import Palette
from roost.tui.drawing.spark_line import spark
from roost.tui.drawing.styled_text import cell
from roost.tui.run_tabs.run_data import SystemSeries

_UNITS = {
    "utilization": "%", "memory_busy": "%", "memory_mb": "MB", "power": "W", "temperature": "°C",
    "clock": "MHz", "cores": "", "cpu": "%", "read_mb_s": "MB/s", "write_mb_s": "MB/s",
    "disk_read_mb_s": "MB/s", "disk_write_mb_s": "MB/s", "receive_mb_s": "MB/s", "send_mb_s": "MB/s",
    "processes": "", "swap_mb": "MB", "throttled_power": "%", "throttled_heat": "%", "throttled_other": "%",
    "memory_clock": "MHz",
}  # fmt: skip
_FULL_SCALE = ("utilization", "memory_busy", "cpu")
_NAME, _VALUE = 24, 14


def lines(series: SystemSeries | None, width: int, colours: Palette) -> list[Strip]:
    """Returns the lines of a session's measurements; columns that stay 0 are left out."""
    if series is None:
        return []
    text, faint = palette.style(colours.text), palette.style(colours.faint)
    found = [Strip([cell("", _NAME), cell("now", _VALUE, faint), cell("peak", _VALUE, faint),
                    Segment(f"last {_span(series)}", faint)])]  # fmt: skip
    group = ""
    for name, values in series.values.items():
        known = [one for one in values if one is not None]
        if not known or not any(known):
            continue
        head, _, column = name.partition("/")
        if head != group:
            group = head
            found.append(Strip([Segment(head, palette.style(colours.accent, attributes="b"))]))
        unit = _UNITS.get(column, "")
        high = 100.0 if column in _FULL_SCALE else None
        size = max(8, width - _NAME - 2 * _VALUE)
        found.append(Strip([
            cell(f"  {column.removesuffix('_mb_s').removesuffix('_mb').replace('_', ' ')}", _NAME, text),
            cell(_value(known[-1], unit), _VALUE, text),
            cell(_value(max(known), unit), _VALUE, faint),
            Segment(spark(values, size, 0.0, high), palette.style(colours.busy)),
        ]))  # fmt: skip
    return found


def _value(value: float, unit: str) -> str:
    if unit == "MB" and value >= 1024:
        return f"{value / 1024:.1f} GB"
    number = f"{value:.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.1f}"
    return f"{number} {unit}".strip()


def _span(series: SystemSeries) -> str:
    from roost.base.text.durations import format_duration

    return format_duration(max(1.0, series.times[-1] - series.times[0]))
