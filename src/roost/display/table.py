"""Tables on a terminal: as many columns as fit, each as wide as its cells, and long cells shortened."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Literal, NamedTuple

from roost.display.terminal import STYLED_CELL, cell_width, crop, escape_name, symbol, truncate

_GAP = "  "
"""Between two columns."""
_MIN_NAME = 20
"""Characters of the names in the first column of a narrow table."""


class TableColumn(NamedTuple):
    """A column of a table."""

    name: str
    cells: Sequence[str]
    """Text of any origin: line ends and control characters are made visible. A cell may have a style of
    roost's own, such as `roost.display.terminal.format_state` returns."""
    min_width: int | None = None
    """The characters to which cells may be shortened where the table is too wide; None: they never are."""
    shortened: Literal["end", "middle", "wrapped"] = "end"
    """Where text is left out of a long cell; wrapped: nowhere, it continues in the next line."""


class Narrowing(NamedTuple):
    """Which columns are left out of a table that is too wide."""

    min_text: int
    """Columns are left out until the columns that can be shortened have so many characters together, or as
    many as they need."""
    left_out: Sequence[Sequence[str]]
    """The names of the columns, in groups that are left out one after the other. A group that then fits
    beside the rest is shown after all."""


def terminal_width() -> int | None:
    """Returns the characters of a line of the terminal that is stdout; None for another stdout, where tables
    are as wide as they need."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def fit_table(
    header: Sequence[str], rows: Iterable[Sequence[str]], *, left_out: Sequence[str] = ()
) -> list[str]:
    """Returns the lines of a table for stdout: on a terminal that is too narrow, columns are left out in the
    given order, and the names in the first column lose their middle."""
    cells = list(zip(*rows, strict=True)) or [()] * len(header)
    columns = [TableColumn(name, one) for name, one in zip(header, cells, strict=True)]
    columns[0] = columns[0]._replace(min_width=_MIN_NAME, shortened="middle")
    narrowing = [Narrowing(_MIN_NAME, [(name,) for name in left_out])]
    return format_columns(columns, terminal_width(), narrowing=narrowing)


def format_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Returns the lines of a table with all columns, as `format_columns` does."""
    columns = zip(*rows, strict=True)
    return format_columns([TableColumn(*one) for one in zip(header, columns, strict=False)])


def format_columns(
    columns: Sequence[TableColumn], width: int | None = None, *, narrowing: Sequence[Narrowing] = ()
) -> list[str]:
    """Returns the lines of a table, the header first. A column without any text is left out.

    Args:
        columns: The columns.
        width: Characters of a line; None: as many as needed. What does not fit even without the columns that
            may be left out is cut off.
        narrowing: Which columns are left out, one after the other.
    """
    # Works on whole columns: ten thousand rows must cost no Python call for a single cell.
    shown = fit_columns(columns, width, narrowing)
    if not shown:
        return []
    shown = [one._replace(cells=_escape_cells(one.cells)) for one in shown]
    widths = _natural_widths(shown)
    if width is not None:
        widths = _shorten(shown, widths, width)
    cells = [_fit_cells(one, widths[one.name]) for one in shown]
    if any("\n" in cell for one in cells for cell in one):
        cells = _continue_rows(cells)
    table = [[one.name, *found] for one, found in zip(shown, cells, strict=True)]
    padded = [_pad(one) for one in table[:-1]]
    lines = [line.rstrip() for line in map(_GAP.join, zip(*padded, table[-1], strict=True))]
    return lines if width is None else [truncate(line, width) for line in lines]


def fit_columns(
    columns: Sequence[TableColumn], width: int | None, narrowing: Sequence[Narrowing]
) -> list[TableColumn]:
    """Returns the columns that `format_columns` shows, with the same arguments."""
    shown = [one for one in columns if any(one.cells)]
    if width is None:
        return shown
    widths = _natural_widths([one._replace(cells=_escape_cells(one.cells)) for one in shown])
    for stage in narrowing:
        shown = _leave_out(shown, widths, width, stage)
    return shown


def format_bar(part: float, width: int) -> str:
    """Returns a bar of which a part, from 0 to 1, is full."""
    full, empty = symbol("█", "#"), symbol("░", "-")
    done = min(width, int(part * width + 1e-9))  # full only at the end
    return full * done + empty * (width - done)


def _natural_widths(columns: Sequence[TableColumn]) -> dict[str, int]:
    return {one.name: max(_widths([one.name, *one.cells])) for one in columns}


def _leave_out(
    columns: Sequence[TableColumn], widths: dict[str, int], width: int, stage: Narrowing
) -> list[TableColumn]:
    text = {one.name for one in columns if one.min_width is not None}
    min_text = min(stage.min_text, sum(widths[name] for name in text))

    def remaining(groups: Iterable[Sequence[str]]) -> list[TableColumn]:
        hidden = frozenset(name for group in groups for name in group)
        return [one for one in columns if one.name not in hidden]

    def fits(groups: Iterable[Sequence[str]]) -> bool:
        kept = remaining(groups)
        needed = min_text + sum(widths[one.name] for one in kept if one.name not in text)
        return needed + len(_GAP) * (len(kept) - 1) <= width

    left_out: list[Sequence[str]] = []
    for group in stage.left_out:
        if fits(left_out):
            break
        left_out.append(group)
    for group in reversed(left_out.copy()):
        others = [one for one in left_out if one is not group]
        if fits(others):
            left_out = others
    return remaining(left_out)


def _shorten(columns: Sequence[TableColumn], widths: dict[str, int], width: int) -> dict[str, int]:
    """Returns the widths of the columns where the table has a width: those that may be shortened share what
    the others leave, each as much as another unless it needs less."""
    long = {one.name: _lowest_width(one) for one in columns if one.min_width is not None}
    wrapped = {one.name for one in columns if one.shortened == "wrapped"}
    found = dict(widths)
    free = width - len(_GAP) * (len(columns) - 1)
    free -= sum(widths[one.name] for one in columns if one.name not in long)
    for name in sorted(long, key=lambda name: widths[name]):  # those that need least first
        lowest, count = long.pop(name), len(long) + 1
        share = max(lowest, min(free // count, free - sum(long.values())), 1)
        if name in wrapped:  # a word that has no room is broken
            share = max(min(share, free - sum(long.values())), 1)
        found[name] = min(widths[name], share)
        free -= found[name]
    return found


def _lowest_width(column: TableColumn) -> int:
    """Returns the characters that a column keeps; of a wrapped one its longest word."""
    lowest = column.min_width or 0
    if column.shortened != "wrapped":
        return lowest
    return max([lowest, *_widths(" ".join(column.cells).split())])


def _fit_cells(column: TableColumn, width: int) -> list[str]:
    cells = list(column.cells)
    if column.min_width is None:
        return cells
    too_long = [index for index, found in enumerate(_widths(cells)) if found > width]
    for index in too_long:
        if column.shortened == "wrapped":
            cells[index] = "\n".join(textwrap.wrap(cells[index], width, break_on_hyphens=False))
        elif column.shortened == "middle":
            cells[index] = shorten_middle(cells[index], width)
        else:
            cells[index] = truncate(cells[index], width)
    return cells


def shorten_middle(cell: str, width: int) -> str:
    """Returns a cell, without its middle if it is wider: names of a sweep differ at their ends."""
    if cell_width(cell) <= width:
        return cell
    ellipsis = symbol("…", "...")
    free = max(0, width - len(ellipsis))
    begin = crop(cell, free // 2)
    end = crop(cell[::-1], free - cell_width(begin))[::-1]
    return f"{begin}{ellipsis}{end}"


def _continue_rows(columns: Sequence[Sequence[str]]) -> list[list[str]]:
    """Returns the columns with a further row for each further line of a cell."""
    lines: list[tuple[str, ...]] = []
    for row in zip(*columns, strict=True):
        lines += zip_longest(*(cell.split("\n") for cell in row), fillvalue="")
    return [list(one) for one in zip(*lines, strict=True)]


def _pad(cells: Sequence[str]) -> list[str]:
    widths = list(_widths(cells))
    width = max(widths)
    return [cell + " " * (width - found) for cell, found in zip(cells, widths, strict=True)]


def _widths(cells: Sequence[str]) -> Iterator[int]:
    together = "".join(cells)
    return map(len if together.isascii() and "\x1b" not in together else cell_width, cells)


def _escape_cells(cells: Sequence[str]) -> Sequence[str]:
    together = "".join(cells)
    if together.isprintable():
        return cells
    return [cell if STYLED_CELL.fullmatch(cell) else escape_name(cell) for cell in cells]
