"""Palettes, ASCII, spark-lines, bars, curves, pictures, text of outputs."""

from __future__ import annotations

import io
import math

import pytest
from hypothesis import given
from hypothesis import strategies as some
from PIL import Image
from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from roost.base.errors import RoostError
from roost.tui import first_frame
from roost.tui.drawing import ascii_filter, curve_panel, palette, pictures, styled_text
from roost.tui.drawing.curve_panel import CurvePanel, PanelCurve
from roost.tui.drawing.spark_line import bar, spark
from roost.tui.queue_cells import format_value, short_duration


@pytest.mark.parametrize(
    ("wanted", "environment", "name"),
    [
        ("auto", {}, "dark"),
        ("auto", {"COLORFGBG": "0;15"}, "light"),
        ("auto", {"COLORFGBG": "15;0"}, "dark"),
        ("auto", {"COLORFGBG": "15;default"}, "dark"),
        ("light", {"COLORFGBG": "15;0"}, "light"),
        ("light", {"NO_COLOR": "1"}, "plain"),
        ("auto", {"NO_COLOR": ""}, "dark"),  # empty is as if it were not set
    ],
)
def test_the_palette(wanted: str, environment: dict[str, str], name: str) -> None:
    assert palette.choose(wanted, environment).name == name


def test_text_can_be_read_on_its_background() -> None:
    def light(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        parts = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    for colours in (palette.DARK, palette.LIGHT):
        for ground in (colours.background, colours.panel, colours.selected):
            for name in ("text", "faint", "accent", "good", "busy", "waiting", "bad", "marked"):
                low, high = sorted((light(ground), light(getattr(colours, name))))
                least = 4.5 if name == "text" else 3.0  # WCAG 2.2, 1.4.3 and 1.4.11
                assert (high + 0.05) / (low + 0.05) >= least, (colours.name, ground, name)


@pytest.mark.parametrize(
    ("environment", "ascii_only"),
    [
        ({"LANG": "en_US.UTF-8"}, False),
        ({"LANG": "C.utf8"}, False),
        ({"LC_ALL": "C", "LANG": "en_US.UTF-8"}, True),
        ({"LC_CTYPE": "de_DE.ISO-8859-1"}, True),
        ({}, False),
    ],
)
def test_the_locale_decides_about_ascii(environment: dict[str, str], ascii_only: bool) -> None:
    assert first_frame.needs_ascii(environment, "utf-8") == ascii_only


@given(some.text())
def test_ascii_takes_as_many_cells(text: str) -> None:
    found = ascii_filter.to_ascii(text)
    assert found.isascii()
    assert cell_len(found) == cell_len(text)


@given(some.lists(some.one_of(some.none(), some.floats())), some.integers(0, 40))
def test_a_spark_line_has_its_width(values: list[float | None], width: int) -> None:
    assert len(spark(values, width)) == width


def test_a_spark_line_shows_a_spike() -> None:
    values = [1.0] * 500
    values[250] = 9.0
    assert spark(values, 10).count("█") == 1
    assert spark([0.0, 50.0, 100.0], 3, 0.0, 100.0) == "▁▅█"
    assert spark([None, math.nan], 3) == "   "


@given(some.lists(some.floats(-1, 2)), some.integers(0, 40))
def test_a_bar_has_its_width(shares: list[float], width: int) -> None:
    found = bar([(share, Style()) for share in shares], width, Style())
    assert sum(len(one.text) for one in found) == width


def test_the_parts_of_a_bar_differ_without_colours() -> None:
    text = "".join(one.text for one in bar([(0.5, Style()), (0.25, Style())], 8, Style()))
    assert text == "████▓▓░░"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (59.9, "59s"), (60, "1m"), (3661, "1h01"), (90000, "1d1h"), (1e6, "11d")]
)
def test_short_durations(seconds: float, text: str) -> None:
    assert short_duration(seconds) == text
    assert len(text) <= 5


@given(some.floats(allow_nan=False, allow_infinity=False))
def test_a_value_takes_at_most_nine_characters(value: float) -> None:
    assert len(format_value(value)) <= 9


@pytest.mark.parametrize("unicode", [True, False])
@given(some.lists(some.floats(), min_size=1, max_size=30), some.booleans())
def test_a_panel_has_its_size(unicode: bool, y: list[float], logarithmic: bool) -> None:
    panel = CurvePanel("loss", [PanelCurve("loss", [float(one) for one in range(len(y))], y, 0)])
    found = curve_panel.draw(panel, 40, 9, palette.DARK, unicode=unicode, logarithmic=logarithmic)
    assert len(found) == 9
    assert all(one.cell_length <= 41 for one in found)


def test_a_single_point_is_a_dash() -> None:
    panel = CurvePanel("test", [PanelCurve("test", [100.0], [0.5], 0)])
    found = curve_panel.draw(panel, 40, 9, palette.DARK, unicode=True, logarithmic=False)
    dots = sum(ord(one) - 0x2800 > 0 for line in found for one in line.text if 0x2800 <= ord(one) < 0x2900)
    assert dots >= 2


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("plain", "plain"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("10%\r20%\r30%", "30%"),
        ("10%\r20%\r", "20%"),
        ("\x1b[2J\x1b]0;t\x07", r"\x1b[2J\x1b]0;t\x07"),
        ("a\tb", "a   b"),
        ("\x1b[8mhidden\x1b[0m", r"\x1b[8mhidden"),
        ("[bold]x[/bold]", "[bold]x[/bold]"),
        ("x" * 10_000, "x" * (styled_text.MAX_LINE_CHARACTERS - 1) + "…"),
    ],
)
def test_a_line_of_output(line: str, text: str) -> None:
    assert styled_text.output_strip(line).text == text


def test_colours_of_output_stay() -> None:
    segment = next(iter(styled_text.output_strip("\x1b[1;31mred\x1b[0m")))
    assert segment.style is not None
    assert segment.style.bold
    assert segment.style.color is not None


def test_a_wide_name_keeps_its_cells() -> None:
    assert styled_text.cell("驱动测试", 5).cell_length == 5
    assert cell_len(styled_text.middle("驱动-测试-很长的名字", 10)) <= 10


def _png(width: int, height: int, colour: tuple[int, int, int] = (255, 0, 0)) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (width, height), colour).save(file, "PNG")
    return file.getvalue()


@pytest.mark.parametrize("size", [(1, 1), (28, 28), (640, 480), (3, 400), (400, 3)])
def test_a_picture_fits_with_its_proportions(size: tuple[int, int]) -> None:
    lines = pictures.half_blocks(_png(*size), 60, 20)
    assert 1 <= len(lines) <= 20
    assert all(1 <= len(line) <= 60 for line in lines)
    style = lines[0][0].style
    assert style is not None
    assert style.color is not None
    assert style.color.triplet == (255, 0, 0)


def test_a_picture_without_colours_is_light_and_dark() -> None:
    white, black = (pictures.shades(_png(8, 8, one), 8, 4) for one in ((255, 255, 255), (0, 0, 0)))
    assert set(white[0][0].text) == {"@"}
    assert set(black[0][0].text) == {" "}


def test_sixel_has_its_frame_and_colours() -> None:
    text = pictures.sixel(_png(8, 8), 100, 100)
    assert text.startswith('\x1bPq"1;1;8;8#')
    assert ";2;100;0;0" in text
    assert "!8~$-" in text
    assert text.endswith("\x1b\\")


@pytest.mark.parametrize(
    "data", [b"", b"no picture", _png(8, 8)[:50], b"\x89PNG\r\n\x1a\n" + bytes(100), b"GIF89a" + b"\xff" * 9]
)
def test_what_is_no_picture(data: bytes) -> None:
    with pytest.raises(RoostError):
        pictures.half_blocks(data, 10, 10)


@pytest.mark.parametrize(
    ("environment", "can"),
    [
        ({"TERM": "foot"}, True),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "WezTerm"}, True),
        ({"TERM": "xterm-256color"}, False),
        ({"TERM": "foot", "TMUX": "/tmp/x"}, False),
        ({"TERM": "xterm", "ROOST_SIXEL": "1"}, True),
        ({"TERM": "foot", "ROOST_SIXEL": "0"}, False),
    ],
)
def test_which_terminals_show_sixel(environment: dict[str, str], can: bool) -> None:
    assert pictures.can_show_sixel(environment) == can


@pytest.mark.parametrize(
    "text", ["x" * 4096, "日本" * 700 + "y" * 90, "\u0301e" * 300, "ab日" * 40, "short", ""]
)
@pytest.mark.parametrize("width", [1, 2, 7, 80])
def test_a_wrapped_line_is_whole_and_no_piece_is_too_wide(text: str, width: int) -> None:
    style = Style(bold=True)
    strip = Strip([Segment(text[:9]), Segment(text[9:], style)])
    pieces = styled_text.wrap(strip, width)
    assert "".join(piece.text for piece in pieces) == text
    assert [piece.cell_length for piece in pieces] == [cell_len(piece.text) for piece in pieces]
    if width > 1:
        assert all(piece.cell_length <= width for piece in pieces)
        assert all(piece.cell_length >= width - 1 for piece in pieces[:-1])
    assert "".join(part for piece in pieces for part, its, _ in piece if its == style) == text[9:]


def test_names_of_any_length_are_cut_to_their_cells() -> None:
    for name in ("x" * 10**6, "日" * 10**6, "\u0301" * 10**6):
        assert styled_text.cell(name, 20).cell_length == 20
        assert cell_len(styled_text.middle(name, 20)) <= 20
