"""What cards, host and processes of a session did, second by second: ``system/<n>.jsonl`` in the package.

::

    {"format": 1, "columns": ["gpu0/utilization", …], "cards": [{"id": "GPU-6f1d…", "name": "H100", …}], …}
    [1795160001.0, 1.0, [57, 12.3, null]]                 end of the row (Unix seconds), its length, means
    [1795160256.0, 64.0, [55.1, 12, 0.2], [98, 12.9, 3]]  a longer row has peaks, too
    {"gap": [1795160300.0, 1795160312.0, "the driver does not answer"]}

A line that is a mapping adds to the facts of the file, of which the last value counts. A file has at most
`MAX_ROWS` rows and `MAX_BYTES` bytes: when it is full, each two neighbours are merged, and further rows
are twice as long. A supervisor writes it (`roost.supervisor.monitoring.system_file`); on a further machine
its name is ``<n>.node-<k>.jsonl``.

The columns, in per cent of the time or of all cores, MB (2^20 bytes), MB/s, W, degrees Celsius, MHz:

- ``gpu<i>/…`` of the session's card i: utilization, memory_busy, memory_mb, power, temperature, clock,
  memory_clock, throttled_power, throttled_heat, throttled_other
- ``session/…`` of all of its processes: cores, memory_mb, read_mb_s, write_mb_s, processes
- ``host/…`` of the machine: cpu, memory_mb, swap_mb, disk_read_mb_s, disk_write_mb_s, receive_mb_s, send_mb_s
"""

# Standard library only

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from roost.base import safe_read
from roost.devices.sampling.machine_columns import CARD_COLUMNS, HOST_COLUMNS

FOLDER = "system"
FORMAT = 1
MAX_ROWS = 8192
MAX_BYTES = 16 * 2**20
SESSION_COLUMNS = ("cores", "memory_mb", "read_mb_s", "write_mb_s", "processes")
FILE_NAME = re.compile(r"([0-9]{1,9})(?:\.node-([0-9]{1,6}))?\.jsonl")
_MAX_READ_BYTES = 2 * MAX_BYTES
_MAX_TIME = 1e11
Values = Sequence[float | None]


class SystemRow(NamedTuple):
    """The means and peaks of one interval."""

    time: float
    """Its end, Unix seconds."""
    seconds: float
    means: Values
    """By column; None where nothing was measured."""
    peaks: Values


class SystemGap(NamedTuple):
    """A time in which something could not be measured. Unix seconds."""

    begin: float
    end: float
    reason: str


class SystemColumns(NamedTuple):
    """The measurements of one session on one machine."""

    session: int
    node: int
    """0, or the number of the further machine."""
    times: list[float]
    """The end of each row, Unix seconds."""
    seconds: list[float]
    """How long each row is."""
    names: list[str]
    """The columns in which something was measured."""
    values: dict[str, list[float | None]]
    """The mean of each row, by column."""
    peaks: dict[str, list[float | None]]
    """The largest value of each row, by column."""
    cards: list[dict[str, Any]]
    """id, name, total_mb of each card, in the order of their columns."""
    host: dict[str, Any]
    """name, cores, memory_mb."""
    gaps: list[SystemGap]


class SystemMetrics(NamedTuple):
    """The measurements of the sessions of a package."""

    sessions: list[SystemColumns]
    """In the order of the sessions; empty for a package of an older roost."""


def column_names(num_cards: int) -> list[str]:
    """Returns the columns of a session with a number of cards."""
    cards = [f"gpu{card}/{name}" for card in range(num_cards) for name in CARD_COLUMNS]
    session = [f"session/{name}" for name in SESSION_COLUMNS]
    return [*cards, *session, *(f"host/{name}" for name in HOST_COLUMNS)]


def merge(first: SystemRow, second: SystemRow) -> SystemRow:
    """Returns one row for two neighbours."""
    share = first.seconds / ((first.seconds + second.seconds) or 1.0)
    means = [
        b if a is None else a if b is None else a * share + b * (1 - share)
        for a, b in zip(first.means, second.means, strict=True)
    ]
    peaks = [
        b if a is None else a if b is None else max(a, b)
        for a, b in zip(first.peaks, second.peaks, strict=True)
    ]
    return SystemRow(second.time, first.seconds + second.seconds, means, peaks)


def encode_row(row: SystemRow) -> bytes:
    """Returns the line of a row."""
    body: list[Any] = [round(row.time, 3), round(row.seconds, 3), [*map(_rounded, row.means)]]
    if row.peaks != row.means:
        body.append([*map(_rounded, row.peaks)])
    return json.dumps(body, separators=(",", ":")).encode() + b"\n"


def _rounded(value: float | None) -> float | None:
    """A value with four significant digits, as a whole number where it is one: no sensor is more precise."""
    if value is None:
        return None
    short = float(f"{value:.4g}")
    return int(short) if short.is_integer() else short


def decode_line(line: bytes, num_columns: int) -> SystemRow | dict[str, Any] | None:
    """Returns the row or the facts of a line; None if it is neither: torn, or not of roost."""
    try:
        body = json.loads(line)
        if isinstance(body, dict):
            return body
        time, seconds, means, *rest = body
        found = SystemRow(float(time), float(seconds), _checked(means), _checked(rest[0] if rest else means))
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None
    is_whole = len(found.means) == len(found.peaks) == num_columns
    return found if is_whole and 0 < found.time < _MAX_TIME and 0 < found.seconds < _MAX_TIME else None


def _checked(values: Any) -> list[float | None]:
    return [None if one is None or not math.isfinite(one) else float(one) for one in values]


def read(package: Path) -> SystemMetrics:
    """Reads what was measured in a package. Damaged lines, and files that roost cannot have written, are left
    out: `roost verify` finds those."""
    try:
        names = sorted(
            (int(match[1]), int(match[2] or 0), path)
            for path in (package / FOLDER).iterdir()
            if (match := FILE_NAME.fullmatch(path.name))
        )
    except OSError:
        return SystemMetrics([])
    found = (read_file(path, session, node) for session, node, path in names)
    return SystemMetrics([one for one in found if one is not None])


def read_file(path: Path, session: int = 0, node: int = 0) -> SystemColumns | None:
    """Reads one file; None if it does not exist, or has no rows."""
    try:
        lines = bytes(safe_read.read(path, max_bytes=_MAX_READ_BYTES)).split(b"\n")
    except OSError:
        return None
    facts: dict[str, Any] = {}
    rows: list[SystemRow] = []
    gaps: list[SystemGap] = []
    columns: list[str] = []
    for line in lines:
        if not line:
            continue
        decoded = decode_line(line, len(columns))
        if isinstance(decoded, SystemRow):
            rows.append(decoded)
        elif decoded is not None:
            gaps += _gaps(decoded.pop("gap", None))
            if not columns:
                columns = _checked_names(decoded.get("columns"))
            facts |= decoded
    if not rows:
        return None
    means = dict(zip(columns, map(list, zip(*(row.means for row in rows), strict=True)), strict=True))
    peaks = dict(zip(columns, map(list, zip(*(row.peaks for row in rows), strict=True)), strict=True))
    measured = [name for name in columns if any(one is not None for one in means[name])]
    return SystemColumns(
        session,
        node,
        [row.time for row in rows],
        [row.seconds for row in rows],
        measured,
        {name: means[name] for name in measured},
        {name: peaks[name] for name in measured},
        _mappings(facts.get("cards")),
        host if isinstance(host := facts.get("host"), dict) else {},
        gaps,
    )


def rows_of(columns: SystemColumns, names: Sequence[str]) -> Iterator[SystemRow]:
    """Yields the rows of a file again, with the columns ``names``."""
    for at, time in enumerate(columns.times):
        means, peaks = (
            [group[name][at] if name in group else None for name in names]
            for group in (columns.values, columns.peaks)
        )
        yield SystemRow(time, columns.seconds[at], means, peaks)


def _gaps(value: Any) -> Iterator[SystemGap]:
    match value:
        case [int() | float() as begin, int() | float() as end, str() as reason]:
            if 0 < begin <= end < _MAX_TIME:  # not NaN, nor an integer that no float can hold
                yield SystemGap(float(begin), float(end), reason)


def _checked_names(value: Any) -> list[str]:
    is_valid = isinstance(value, list) and all(isinstance(name, str) for name in value)
    return value if is_valid and len(set(value)) == len(value) else []


def _mappings(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
