from __future__ import annotations

import pytest

from roost.base.text.terminal_styles import StyleParser, without_styles


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("plain", [("", "plain")]),
        ("\x1b[1;31mfailed\x1b[0m: why", [("ansired bold", "failed"), ("", ": why")]),
        (
            "\x1b[31ma\x1b[1mb\x1b[22mc\x1b[39md",
            [("ansired", "a"), ("ansired bold", "b"), ("ansired", "c"), ("", "d")],
        ),
        ("\x1b[97;100mx\x1b[m", [("ansiwhite bg:ansibrightblack", "x")]),
        (
            "\x1b[38;5;9ma\x1b[38;5;48mb\x1b[48;5;244mc",
            [("ansibrightred", "a"), ("#00ff87", "b"), ("#00ff87 bg:#808080", "c")],
        ),
        ("\x1b[38;2;1;2;300mx", [("#0102ff", "x")]),
        ("\x1b[4;3;9;7mx", [("underline italic strike reverse", "x")]),
        ("\x1b]0;title\x07a\x1b[2Jb\x1b[?25lc\x1b(Bd\x1bMe", [("", "abcde")]),
        ("\x1b[38mx\x1b[999999999999mx\x1b[;mz", [("", "xxz")]),
        ("", []),
    ],
)  # fmt: skip
def test_styles(text: str, pieces: list[tuple[str, str]]) -> None:
    assert StyleParser().feed(text, final=True) == pieces
    parser, found = StyleParser(), ""
    for char in text:
        found += "".join(piece for _, piece in parser.feed(char))
    assert found + "".join(piece for _, piece in parser.feed("", final=True)) == without_styles(text)
    assert without_styles(text) == "".join(piece for _, piece in pieces)


def test_an_escape_without_an_end_is_text() -> None:
    parser = StyleParser()
    assert parser.feed("a\x1b[3") == [("", "a")]
    assert parser.feed("1mb") == [("ansired", "b")]
    assert "".join(piece for _, piece in parser.feed("\x1b[" + "1" * 100)) == "\x1b[" + "1" * 100
    assert parser.feed("\x1b", final=True) == [("ansired", "\x1b")]
