"""Replaces characters that a terminal without UTF-8 cannot show. It sees each line last, so panes need not
know."""

from __future__ import annotations

from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

_REPLACEMENTS = {
    **dict.fromkeys("─━═┄┈⎯", "-"),
    **dict.fromkeys("│┃║┆┊▏▕", "|"),
    **dict.fromkeys("╭╮╰╯┌┐└┘├┤┬┴┼┏┓┗┛╴╶╵╷", "+"),
    **dict.fromkeys("█▉▊▋■▀", "#"),
    **dict.fromkeys("▅▓", "="),
    **dict.fromkeys("▍▎▃▒", "-"),
    **dict.fromkeys("▁▂", "_"),
    "▌": ">",
    "▆": "*",
    "▄": "+",
    "▇": "%",
    "‖": "|",
    **dict.fromkeys("░·", "."),
    **dict.fromkeys("●◉◆★✓", "*"),
    **dict.fromkeys("○◌◇☆", "o"),
    **dict.fromkeys("✗×", "x"),
    **dict.fromkeys("▶▸›❯→", ">"),
    **dict.fromkeys("◀◂‹←", "<"),
    **dict.fromkeys("▼▾↓", "v"),
    **dict.fromkeys("▲▴↑", "^"),
    "…": ".",
    "⏸": "=",
    "°": " ",
}
_TABLE = str.maketrans(_REPLACEMENTS)


def to_ascii(text: str) -> str:
    """Returns a text in ASCII that takes as many cells."""
    if text.isascii():
        return text
    replaced = text.translate(_TABLE)
    if replaced.isascii():
        return replaced
    return "".join(one if one.isascii() else "?" * cell_len(one) for one in replaced)


class AsciiFilter(LineFilter):
    """Replaces what is not ASCII."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Returns the segments in ASCII."""
        return [Segment(to_ascii(text), style, control) for text, style, control in segments]
