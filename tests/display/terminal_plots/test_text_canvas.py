"""Curves of characters."""

from __future__ import annotations

from roost.display.terminal_plots.text_canvas import BrailleCanvas, LetterCanvas, Pen


def test_dots_of_a_diagonal() -> None:
    canvas = BrailleCanvas(2, 1)
    canvas.line([(0, 0), (1, 1)], Pen(0, ""))
    assert canvas.rows() == ["⡠⠊"]


def test_a_flat_line_and_dashes() -> None:
    plain, dotted = BrailleCanvas(4, 1), BrailleCanvas(4, 1)
    plain.line([(0, 0), (1, 0)], Pen(0, ""))
    dotted.line([(0, 0), (1, 0)], Pen(0, "", dash=2))
    assert plain.rows() == ["⣀⣀⣀⣀"]
    assert dotted.rows() != plain.rows() and dotted.rows()[0].strip()


def test_each_dash_differs() -> None:
    seen = set()
    for dash in range(5):
        canvas = BrailleCanvas(10, 1)
        canvas.line([(0, 0), (1, 0)], Pen(0, "", dash))
        seen.add(canvas.rows()[0])
    assert len(seen) == 5


def test_colours_are_closed_in_each_row() -> None:
    canvas = BrailleCanvas(3, 2)
    canvas.line([(0, 0), (1, 0)], Pen(0, "\x1b[31m"))
    canvas.mark(1, 1, "x", Pen(0, "\x1b[32m"))
    assert canvas.rows() == ["  \x1b[32mx\x1b[0m", "\x1b[31m⣀⣀⣀\x1b[0m"]


def test_letters_keep_the_extremes_of_a_column() -> None:
    canvas = LetterCanvas(3, 3)
    canvas.line([(0.4, 0), (0.5, 1), (0.6, 0), (1, 0)], Pen(1, ""))
    assert canvas.rows() == [" b ", "   ", " bb"]


def test_positions_outside_are_at_the_edge() -> None:
    canvas = LetterCanvas(2, 2)
    canvas.mark(-1, 5, "x", Pen(0, ""))
    canvas.line([(2, -3)], Pen(0, ""))
    assert canvas.rows() == ["x ", " a"]
