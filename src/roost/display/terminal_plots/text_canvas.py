"""A canvas of characters: curves as braille dots in colours, or as letters where these cannot be shown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""The bits of the dots of a braille character, by row and column (Unicode 6.2, section 15.11)."""
_BRAILLE = 0x2800
_DASHES = ((1, 0), (4, 2), (1, 2), (5, 5), (2, 5))
"""Dots on and off, for the dashes of `roost.operations.plots.curve_styles`."""
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True)
class Pen:
    """The look of a curve on a canvas."""

    style: int
    """The number of its letter."""
    colour: str
    """The codes of its colour; empty: none."""
    dash: int = 0


class TextCanvas(Protocol):
    """What curves are drawn on; positions are fractions, from the lower left."""

    def line(self, points: Sequence[tuple[float, float]], pen: Pen) -> None:
        """Draws a line through points."""

    def mark(self, x: float, y: float, character: str, pen: Pen) -> None:
        """Puts a character at a position, above all lines."""

    def rows(self) -> list[str]:
        """Returns the rows, the upper one first, with the codes of colours."""


class _Cells:
    """The characters of a canvas, each with its colour."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.colours = [[""] * width for _ in range(height)]
        self._marks: dict[tuple[int, int], str] = {}

    def mark(self, x: float, y: float, character: str, pen: Pen) -> None:
        """Puts a character at a position, above all lines."""
        column, row = _place(x, self.width), self.height - 1 - _place(y, self.height)
        self._marks[row, column] = character
        self.colours[row][column] = pen.colour

    def join(self, characters: Sequence[Sequence[str]]) -> list[str]:
        """Returns rows of characters with their colours and the marks."""
        lines = []
        for row, line in enumerate(characters):
            pieces, current = [], ""
            for column, character in enumerate(line):
                character = self._marks.get((row, column), character)
                colour = self.colours[row][column] if character != " " else current
                if colour != current:
                    pieces.append("\x1b[0m" + colour if current else colour)
                    current = colour
                pieces.append(character)
            lines.append("".join(pieces) + ("\x1b[0m" if current else ""))
        return lines


class BrailleCanvas(_Cells):
    """Two by four dots for each character."""

    def __init__(self, width: int, height: int) -> None:
        super().__init__(width, height)
        self._bits = [[0] * width for _ in range(height)]

    def line(self, points: Sequence[tuple[float, float]], pen: Pen) -> None:
        """Draws a line through points, with the dash of the pen."""
        on, off = _DASHES[pen.dash % len(_DASHES)]
        columns, rows = 2 * self.width, 4 * self.height
        places = [(_place(x, columns), _place(y, rows)) for x, y in points]
        for drawn, (column, row) in enumerate(_dots_between(places)):
            if drawn % (on + off) < on:
                upper = rows - 1 - row
                self._bits[upper // 4][column // 2] |= _DOTS[upper % 4][column % 2]
                self.colours[upper // 4][column // 2] = pen.colour

    def rows(self) -> list[str]:
        """Returns the rows, the upper one first, with the codes of colours."""
        return self.join([[chr(_BRAILLE + bits) if bits else " " for bits in line] for line in self._bits])


class LetterCanvas(_Cells):
    """A letter for each curve."""

    def __init__(self, width: int, height: int) -> None:
        super().__init__(width, height)
        self._letters = [[" "] * width for _ in range(height)]

    def line(self, points: Sequence[tuple[float, float]], pen: Pen) -> None:
        """Draws a line through points, as a letter in each column: the least and the greatest value of the
        line there."""
        places = [(_place(x, self.width), _place(y, self.height)) for x, y in points]
        by_column: dict[int, set[int]] = {}
        for column, row in _dots_between(places):
            by_column.setdefault(column, set()).add(row)
        for column, rows in by_column.items():
            for row in (min(rows), max(rows)):
                self._letters[self.height - 1 - row][column] = LETTERS[pen.style % len(LETTERS)]
                self.colours[self.height - 1 - row][column] = pen.colour

    def rows(self) -> list[str]:
        """Returns the rows, the upper one first."""
        return self.join(self._letters)


def _place(fraction: float, count: int) -> int:
    return min(count - 1, max(0, math.floor(fraction * count)))


def _dots_between(places: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns the dots of a line through some dots, in order, each once in a row."""
    found = list(places[:1])
    for (x0, y0), (x1, y1) in pairwise(places):
        count = max(abs(x1 - x0), abs(y1 - y0))
        found += [(x0 + round((x1 - x0) * n / count), y0 + round((y1 - y0) * n / count))
                  for n in range(1, count + 1)]  # fmt: skip
    return found
