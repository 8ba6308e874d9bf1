"""Text for lines of panes: untrusted output with its colours, and cells of a fixed width."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from rich.cells import cell_len, get_character_cell_size, set_cell_size
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.strip import Strip

from roost.base.text.terminal_text import escape_control

_NONE = Style()
_SGR = re.compile(r"\x1b\[[0-9;:]*m")
_TAB = 4
_CHARACTERS_PER_CELL = 4
"""Of a cell with more combining characters the rest is left out: names may be of any length."""
MAX_LINE_CHARACTERS = 4096
"""Of a longer line of output the rest is left out, replaced by an ellipsis."""


def escape(text: str) -> str:
    """Returns untrusted text as one line without control characters."""
    if text.isprintable():
        return text
    return escape_control(text.replace("\n", "\\n").replace("\t", " "))


def output_strip(line: str) -> Strip:
    """Returns a line of the output of a run. Its colours stay; other control sequences become visible. Of a
    line that was redrawn by carriage returns, as by progress bars, the last state counts."""
    line = line.rstrip("\r\n")
    if "\r" in line:
        line = line.rpartition("\r")[2]
    if len(line) > MAX_LINE_CHARACTERS:
        line = f"{line[: MAX_LINE_CHARACTERS - 1]}…"
    line = line.expandtabs(_TAB)
    if line.isprintable():
        return Strip([Segment(line, _NONE)], len(line) if line.isascii() else None)
    line = escape_control(line, colours=True).replace("\r", "")
    if "\x1b" not in line:
        return Strip([Segment(line, _NONE)])
    return ansi_strip(line)


def ansi_strip(line: str) -> Strip:
    """Returns a line with SGR codes of our own, or escaped by `escape_control`."""
    text = Text.from_ansi(line, end="", no_wrap=True)
    found = [Segment(part, style or _NONE) for part, style, _ in _segments(text) if part]
    return Strip(found)


def plain(line: str) -> str:
    """Returns a line without its colours."""
    return _SGR.sub("", line)


def cell(text: str, width: int, style: Style = _NONE, *, right: bool = False) -> Segment:
    """Returns a segment of exactly a width; a long text ends in an ellipsis."""
    text = text[: _CHARACTERS_PER_CELL * (width + 1)]
    size = len(text) if text.isascii() else cell_len(text)
    if size > width:
        text = set_cell_size(text, max(0, width - 1)) + "…" if width > 0 else ""
    elif size < width:
        text = " " * (width - size) + text if right else text + " " * (width - size)
    return Segment(text, style)


def middle(text: str, width: int) -> str:
    """Returns a text with its middle left out: names of a sweep differ at their ends."""
    most = _CHARACTERS_PER_CELL * (width + 1)
    if len(text) > 2 * most:
        text = text[:most] + text[-most:]
    if cell_len(text) <= width or width < 4:
        return text
    begin = set_cell_size(text, (width - 1) // 2)
    end = set_cell_size(text[::-1], width - 1 - cell_len(begin))[::-1]
    return f"{begin}…{end}"


def wrap(strip: Strip, width: int) -> list[Strip]:
    """Returns a line in pieces of at most a width. A wide character that does not fit into the rest of a
    piece begins the next one. Each character is looked at once: lines may be long."""
    if width <= 1 or strip.cell_length <= width:
        return [strip]
    pieces: list[Strip] = []
    piece: list[Segment] = []
    used = 0
    for text, style, _ in strip:
        at = 0
        while at < len(text):
            end, cells = _fit(text, at, width - used)
            if end == at:
                pieces.append(Strip(piece, used))
                piece, used = [], 0
                continue
            piece.append(Segment(text[at:end], style))
            at, used = end, used + cells
    return [*pieces, Strip(piece, used)]


def _fit(text: str, begin: int, width: int) -> tuple[int, int]:
    """Returns the end of the longest part of a text that has at most so many cells, and how many it has."""
    if text[begin : begin + width + 1].isascii():
        end = min(len(text), begin + width)
        return end, end - begin
    cells = 0
    for end in range(begin, len(text)):
        size = get_character_cell_size(text[end])
        if cells + size > width:
            return end, cells
        cells += size
    return len(text), cells


def join(parts: Iterable[Segment]) -> Strip:
    """Returns a line of segments."""
    return Strip(parts)


def _segments(text: Text) -> Iterable[Segment]:
    return text.render(_console())


@cache
def _console() -> Console:
    return Console(width=10**6, color_system="truecolor", force_terminal=True, _environ={})
