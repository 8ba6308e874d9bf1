"""The first picture of the client, painted before Textual is imported: a third of a second earlier."""

from __future__ import annotations

import os
from collections.abc import Mapping

MIN_COLUMNS, MIN_ROWS = 60, 16
"""On a smaller terminal the client says that it needs so many."""


def paint(title: str, size: tuple[int, int], *, unicode: bool, colours: bool) -> str:
    """Returns what shows the frame on the alternate screen.

    Args:
        title: A few words; they are not escaped.
        size: Columns and rows of the terminal.
        unicode: Whether lines can be drawn.
        colours: Whether colours are allowed.
    """
    columns, rows = size
    dim, bold, off = ("\x1b[2m", "\x1b[1m", "\x1b[0m") if colours else ("", "", "")
    top, side, bottom = ("╭─╮", "│", "╰─╯") if unicode else ("+-+", "|", "+-+")
    words = f" {title} "[: max(0, columns - 6)]
    lines = [f"{bold}{words}{off}"]
    inner = columns - 2
    waiting = "connecting"
    for number in range(rows - 2):
        if number in (0, rows - 3):
            edge = top if number == 0 else bottom
            lines.append(f"{dim}{edge[0]}{edge[1] * inner}{edge[2]}{off}")
        else:
            text = waiting if number == (rows - 2) // 2 else ""
            lines.append(f"{dim}{side}{text.center(inner)}{side}{off}")
    return "\x1b[?1049h\x1b[?25l\x1b[H\x1b[2J" + "\r\n".join(lines[: max(1, rows - 1)])


def show(fd: int, title: str, *, unicode: bool, colours: bool) -> None:
    """Shows the frame on a terminal."""
    columns, rows = os.get_terminal_size(fd)
    os.write(fd, paint(title, (columns, rows), unicode=unicode, colours=colours).encode())


def started_environment() -> Mapping[str, str]:
    """Returns the variables with which this process was started. In the locale C, Python sets LC_CTYPE to
    C.UTF-8 before any of its code runs, whatever the terminal shows."""
    try:
        with open("/proc/self/environ", "rb") as file:
            lines = os.fsdecode(file.read()).split("\0")
    except OSError:  # not Linux
        return os.environ
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


def needs_ascii(environment: Mapping[str, str], encoding: str) -> bool:
    """Whether the terminal cannot show UTF-8. The locale decides; without one, the encoding of stdout:
    Python's own is UTF-8 also in the locale C."""
    for name in ("LC_ALL", "LC_CTYPE", "LANG"):
        if found := environment.get(name):
            return "utf-8" not in found.lower() and "utf8" not in found.lower()
    return encoding.lower().replace("-", "") != "utf8"
