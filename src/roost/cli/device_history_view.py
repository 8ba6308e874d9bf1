"""Draws the history of cards and host for `roost devices --history`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from roost.base.text.byte_sizes import format_memory
from roost.base.text.counts import format_cores
from roost.base.text.timestamps import format_clock
from roost.display import terminal
from roost.operations.devices.device_history import CardHistory, CardHolding, MachineHistory

_BARS, _PLAIN_BARS = "▁▂▃▄▅▆▇█", "_.-:=+*#"
_MISSING = " "
_MIN_WIDTH, _MAX_WIDTH = 20, 120
_LABEL_WIDTH, _VALUE_WIDTH = 10, 26
_MAX_HOLDERS = 5

Column = Sequence[float | None]


def format_history(found: MachineHistory, *, width: int) -> Iterator[str]:
    """Yields the lines: of each card a row of bars for its utilization and one for its memory, with the
    newest value, and who held it; likewise of the host.

    Args:
        found: The history.
        width: Characters of a line.
    """
    num_bars = max(_MIN_WIDTH, min(_MAX_WIDTH, width - _LABEL_WIDTH - _VALUE_WIDTH))
    begin, end = format_clock(found.since), format_clock(found.until)
    yield f"{'':{_LABEL_WIDTH}}{begin}{end:>{num_bars - len(begin)}}"
    for card in found.cards:
        yield from _card_lines(card, found, num_bars)
    machine, host = found.machine, found.host
    yield terminal.escape_text(f"host {machine.name}".rstrip())
    cores = f" of {format_cores(machine.cores)}" if machine.cores else ""
    yield _line(
        "CPU", _bars(found, host.get("cpu", []), 100.0, num_bars), _format(host.get("cpu"), " %", cores)
    )
    yield _memory_line(host.get("memory_mb", []), machine.memory_mb, found, num_bars)
    for label, name in (
        ("reads", "disk_read_mb_s"),
        ("writes", "disk_write_mb_s"),
        ("receives", "receive_mb_s"),
        ("sends", "send_mb_s"),
    ):
        column = host.get(name, [])
        yield _line(label, _bars(found, column, None, num_bars), _format(column, " MB/s"))


def _card_lines(card: CardHistory, found: MachineHistory, num_bars: int) -> Iterator[str]:
    yield terminal.escape_text(f"GPU {card.number} {card.name}")
    columns = card.columns
    busy = columns.get("utilization", [])
    values = (
        _format(busy, " %"),
        _format(columns.get("power"), " W"),
        _format(columns.get("temperature"), " C"),
    )
    yield _line("busy", _bars(found, busy, 100.0, num_bars), ", ".join(filter(None, values)))
    yield _memory_line(columns.get("memory_mb", []), float(card.total_mb), found, num_bars)
    for one in card.holders[-_MAX_HOLDERS:]:
        yield _line("held by", terminal.escape_text(_format_holder(one)), "")


def _memory_line(column: Column, total_mb: float | None, found: MachineHistory, num_bars: int) -> str:
    value, total = _last(column), f" of {format_memory(total_mb)}" if total_mb else ""
    text = "" if value is None else f"{format_memory(value)}{total}"
    return _line("memory", _bars(found, column, total_mb or None, num_bars), text)


def _line(label: str, bars: str, value: str) -> str:
    return f"  {label:{_LABEL_WIDTH - 2}}{bars} {value}".rstrip()


def _bars(found: MachineHistory, column: Column, most: float | None, num_bars: int) -> str:
    """Returns one character for each of equal parts of the time, for the mean of the values in it; a blank
    where nothing was measured.

    Args:
        found: The times of the values.
        column: The values.
        most: The value of the highest bar; None: the largest mean.
        num_bars: How many characters.
    """
    parts: list[list[float]] = [[] for _ in range(num_bars)]
    seconds = (found.until - found.since) / num_bars
    for time, value in zip(found.times, column, strict=False):
        if value is not None:
            # A coarse sample fills all bars of its interval.
            first = int((time - found.seconds - found.since) // seconds) + 1
            last = int((time - found.since) // seconds)
            for at in range(max(0, min(first, last)), min(last, num_bars - 1) + 1):
                parts[at].append(value)
    means = [sum(part) / len(part) if part else None for part in parts]
    top = most or max((mean for mean in means if mean is not None), default=0.0)
    bars = terminal.symbol(_BARS, _PLAIN_BARS)
    return "".join(_MISSING if mean is None else _bar(mean, top, bars) for mean in means)


def _bar(value: float, most: float, bars: str) -> str:
    share = value / most if most else 0.0
    return bars[max(0, min(len(bars) - 1, int(share * len(bars))))]


def _format(column: Column | None, unit: str, after: str = "") -> str:
    """Returns the newest value with its unit; empty if there is none."""
    value = _last(column or [])
    if value is None:
        return ""
    return f"{value:.0f}{unit}{after}" if value >= 10 or not value else f"{value:.2g}{unit}{after}"


def _last(values: Column) -> float | None:
    return next((value for value in reversed(values) if value is not None), None)


def _format_holder(one: CardHolding) -> str:
    package = f" ({one.package})" if one.package else ""
    until = "now" if one.end is None else format_clock(one.end)
    return f"{one.user}{package}, {format_clock(one.begin)} to {until}"
