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
