"""Talking to the person: stdout is data, stderr is talk."""

from __future__ import annotations

import codecs
import contextlib
import os
import re
import shlex
import shutil
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Self

import click

from roost.base.text import terminal_text as base
from roost.base.text.durations import format_duration as format_duration

_COLOUR_SEQUENCE = re.compile(r"\x1b\[[0-9;:]*m")
_MAX_COLOUR_CHARACTERS = 24
_COLUMN_GAP = 2
"""Between the columns of a table."""
_STATE_COLOURS = {
    "succeeded": "green",
    "running": "cyan",
    "starting": "cyan",
    "stopped": "yellow",
    "failed": "red",
    "crashed": "red",
    "damaged": "red",
}


def allows_colours(stream: IO[str]) -> bool:
    """Whether colours may be written to a stream: a terminal, and NO_COLOR is not set."""
    return stream.isatty() and not os.environ.get("NO_COLOR")


def print_status(text: str) -> None:
    """One line of talk, made harmless but for its colours: it may quote names that somebody else chose. That
    nobody hears it (a closed or full stderr) changes nothing else."""
    with contextlib.suppress(OSError, ValueError):
        click.echo(escape_line(text), err=True, color=allows_colours(sys.stderr))


def print_json(value: object) -> None:
    """An answer for programs, to stdout."""
    import msgspec

    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2))


def write_bytes(data: bytes, to: IO[str] | None = None) -> None:
    """Bytes to a stream, stdout if None, past its buffer: what a closed pipe did not take is not tried again
    at exit.

    Raises:
        BrokenPipeError: Nobody reads any more.
    """
    view, fd = memoryview(data), (to or sys.stdout).fileno()
    while view:
        view = view[os.write(fd, view) :]


def read_key(question: str) -> str:
    """Asks on the terminal that is stdin and waits for one key; Ctrl-C is one like any other. Empty: nobody
    types any more."""
    import termios

    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    keys = termios.tcgetattr(fd)
    keys[3] &= ~(termios.ICANON | termios.ECHO | termios.ISIG)
    try:
        termios.tcsetattr(fd, termios.TCSANOW, keys)  # before the question: an answer may come at once
        print_status(question)
        return os.read(fd, 1).decode(errors="replace").lower()
    finally:
        termios.tcsetattr(fd, termios.TCSANOW, before)


def print_error(text: str) -> None:
    """One line about what is wrong; it may quote names that somebody else chose."""
    print_status(f"{click.style('error:', fg='red', bold=True)} {escape_text(text)}")


class RewrittenLine:
    """Says one line after the other: on a terminal each over the one before, the last one stays."""

    def __init__(self) -> None:
        self._rewrites = sys.stderr.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")
        self._is_open = False

    def show(self, text: str) -> None:
        """Shows a line in the place of the one before."""
        if not self._rewrites:
            print_status(text)
            return
        width = shutil.get_terminal_size().columns
        with contextlib.suppress(OSError, ValueError):
            click.echo(f"\r\x1b[K{truncate(escape_line(text), width)}", err=True, nl=False, color=True)
        self._is_open = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_open:
            print_status("")


def escape_line(text: str) -> str:
    """`escape_text`, and without the carriage return that would write over the line's beginning."""
    return escape_text(text).replace("\r", "\\r")


def format_state(name: str) -> str:
    """A session's state in its colour; `click.echo` takes the colour away where there is none."""
    return click.style(name, fg=_STATE_COLOURS.get(name))


def escape_text(text: str) -> str:
    """`roost.base.text.terminal_text`, which leaves the colours."""
    return base.escape_control(text, colours=True)


class OutputDecoder:
    """Bytes of a run's output to harmless text, across the borders of pieces."""

    def __init__(self) -> None:
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._kept = ""

    def __call__(self, piece: bytes, *, final: bool = False) -> str:
        text = self._kept + self._utf8.decode(piece, final)
        # A colour that is cut in two would be made visible, both halves of it.
        cut = len(text) if final else text.rfind("\x1b", -_MAX_COLOUR_CHARACTERS)
        if cut < 0 or _COLOUR_SEQUENCE.match(text, cut):
            cut = len(text)
        self._kept = text[cut:]
        return escape_text(text[:cut])


def format_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a table, each column as wide as its widest cell; one without any cell is left out.

    Names and values come from a person's code: a line end or a control character in one is made visible.
    """
    # By column, for ten thousand rows: nothing is asked of a single cell in Python.
    found: list[Sequence[str]] = [
        (name, *cells) for name, cells in zip(header, zip(*rows, strict=True), strict=False) if any(cells)
    ]
    found = [_escape_cells(column) for column in found]
    padded = [*map(_pad_cells, found[:-1]), *found[-1:]]
    return [line.rstrip() for line in map((" " * _COLUMN_GAP).join, zip(*padded, strict=True))]


def fit_columns(
    columns: Mapping[str, Sequence[str]],
    width: int,
    *,
    first_to_go: Sequence[Sequence[str]],
    cut: str,
    least: int,
) -> list[str]:
    """The names of the columns of a table that are shown on a terminal of this width.

    Args:
        columns: The cells, by name.
        width: Of the terminal.
        first_to_go: Those that are left out, one after the other, so that the rest fits.
        cut: The last one, whose cells are cut where they do not fit.
        least: So much of them is to be seen.
    """
    widths = {name: max(map(len, (name, *cells))) + _COLUMN_GAP for name, cells in columns.items()}
    if cut in widths:
        widths[cut] = min(widths[cut], least + _COLUMN_GAP)
    for names in first_to_go:
        if sum(widths.values()) - _COLUMN_GAP <= width:
            break
        for name in names:
            widths.pop(name, None)
    return list(widths)


def _escape_cells(cells: Sequence[str]) -> Sequence[str]:
    together = "".join(cells)
    if together.isprintable():
        return cells
    return [escape_line(cell.replace("\n", "\\n").replace("\t", "\\t")) for cell in cells]


def truncate(line: str, width: int) -> str:
    """The line as far as it fits; colours take no room."""
    if len(line) <= width or len(click.unstyle(line)) <= width:
        return line
    kept, room = "", width - 1
    for index, part in enumerate(_COLOUR_SEQUENCE.split(line)):
        colour = _COLOUR_SEQUENCE.findall(line)[index - 1] if index else ""
        kept, room = kept + colour + part[:room], max(0, room - len(part))
    return f"{kept}…"


def _pad_cells(cells: Sequence[str]) -> list[str]:
    if "\x1b" not in "".join(cells):
        width = max(map(len, cells))
        return [cell.ljust(width) for cell in cells]
    bare = [len(click.unstyle(cell)) for cell in cells]
    width = max(bare)
    return [cell + " " * (width - length) for cell, length in zip(cells, bare, strict=True)]


def format_time(seconds: float | None) -> str:
    """A time since the epoch as the clock here shows it; empty for None."""
    return "" if seconds is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def format_path(path: Path) -> str:
    """The path as a person would type it: from the current folder if it is inside."""
    try:
        here = Path.cwd()
    except FileNotFoundError:  # somebody has removed it
        return str(path)
    inside = path.is_relative_to(here) and path != here and here != Path("/")
    return str(path.relative_to(here)) if inside else str(path)


def quote_path(path: Path) -> str:
    """`format_path` as it goes into a command line, quoted where a shell would read more than a name."""
    return shlex.quote(format_path(path))


def format_number(value: float | None) -> str:
    """Four significant digits; empty for None."""
    return "" if value is None else f"{value:.4g}"
