"""Untrusted text on a terminal."""

from __future__ import annotations

import pytest

from roost.base.text.terminal_text import escape_control


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\n\ttext", "plain\n\ttext"),
        ("straße 数据\u3000 👩\u200d💻 \ue0b0", "straße 数据\u3000 👩\u200d💻 \ue0b0"),
        ("\x1b[2J\x1b]0;title\x07", "\\x1b[2J\\x1b]0;title\\x07"),
        ("\x9b2J\x08\x7f", "\\x9b2J\\x08\\x7f"),
        ("\u202e rtl \u2028 \udcff", "\\u202e rtl \\u2028 \\udcff"),
    ],
)
def test_what_could_do_something_is_visible(text: str, shown: str) -> None:
    assert escape_control(text) == escape_control(text, colours=True) == shown


def test_colours_and_bars_are_left_where_that_is_asked() -> None:
    text = "\x1b[1;31mred\x1b[0m\r\x1b[2K"
    assert escape_control(text, colours=True) == "\x1b[1;31mred\x1b[0m\r\\x1b[2K"
    assert escape_control(text) == "\\x1b[1;31mred\\x1b[0m\\r\\x1b[2K"


def test_concealed_text_is_no_colour() -> None:
    for text in ("\x1b[8mhidden", "\x1b[1;8m", "\x1b[38;5;8;8m"):
        assert escape_control(text, colours=True) == text.replace("\x1b", "\\x1b")
    for text in ("\x1b[38;5;8mgrey", "\x1b[48;2;8;8;8m", "\x1b[m", "\x1b[1;31m"):
        assert escape_control(text, colours=True) == text
