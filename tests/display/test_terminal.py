"""Output to the terminal."""

from __future__ import annotations

import io
import itertools
import json
import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.base.text.terminal_text import escape_control
from roost.display import terminal


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\n\ttext\r", "plain\n\ttext\\r"),
        ("\x1b[1;31mred\x1b[0m", "\\x1b[1;31mred\\x1b[0m"),
        ("\x1b[8mhidden", "\\x1b[8mhidden"),
        ("\x1b[2J", "\\x1b[2J"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("\x9b2J", "\\x9b2J"),
        ("\x08\x7f", "\\x08\\x7f"),
        ("grüße 日本", "grüße 日本"),
    ],
)
def test_nothing_of_foreign_text_acts_on_a_terminal(text: str, shown: str) -> None:
    assert terminal.escape_text(text) == shown


@given(st.text(alphabet="\x1b[31m;ü\x9b\x07a\n"), st.lists(st.integers(0, 60)))
def test_pieces_say_the_same_as_the_whole(text: str, cuts: list[int]) -> None:
    data = text.encode()
    decode = terminal.OutputDecoder()
    ends = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    pieces = [data[a:b] for a, b in itertools.pairwise(ends)]
    joined = "".join(decode(piece) for piece in pieces) + decode(b"", final=True)
    assert joined == escape_control(text, colours=True)


def test_what_is_no_text() -> None:
    assert terminal.OutputDecoder()(b"\xff\x00", final=True) == "\ufffd\\x00"


def test_paths_as_a_person_would_type_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert terminal.format_path(tmp_path / "runs" / "a") == "runs/a"
    assert terminal.format_path(tmp_path.parent) == str(tmp_path.parent)
    assert terminal.format_path(tmp_path) == str(tmp_path)


def test_a_line_is_cut_where_the_terminal_ends() -> None:
    line = "name  \x1b[32mrunning\x1b[0m  something long"
    assert terminal.truncate(line, 80) == line
    assert terminal.truncate(line, 20) == "name  \x1b[32mrunning\x1b[0m  some…"
    assert terminal.truncate(line, 9) == "name  \x1b[32mru\x1b[0m…"


def test_a_moment() -> None:
    assert terminal.format_time(None) == ""
    assert re.fullmatch(r"2026-11-\d\d \d\d:\d\d:\d\d", terminal.format_time(1795160000.0))


def test_json_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.print_json({"loss": float("nan"), "name": "grüße"})
    assert capsys.readouterr().out == '{\n  "loss": null,\n  "name": "grüße"\n}\n'


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31m\x1b[1merror:\x1b[0m no", "\x1b[31m\x1b[1merror:\x1b[0m no"),
        ("left \x1b[32mopen", "left \x1b[32mopen\x1b[0m"),
        ("\x1b[8mhidden \x1b[7mreversed", "\\x1b[8mhidden \\x1b[7mreversed"),
        ("one\rtwo", "one\\rtwo"),
        ("\x1b[1mboth\x1b[0m \u202eleft", "\x1b[1mboth\x1b[0m \\u202eleft"),
    ],
)
def test_only_the_styles_of_our_own_words_come_through_and_end(text: str, shown: str) -> None:
    assert terminal.escape_line(text) == shown


def test_json_has_the_same_values_and_does_nothing_to_a_terminal() -> None:
    values = ["\u009b2J", "\u202eabc", "\u2028", "\x7f", "grüße 日本 😀", "\x1b\\"]
    text = terminal.encode_json(msgspec.json.encode(values))
    assert json.loads(text) == values
    assert "grüße 日本 😀" in text and not set(text) & set("\u009b\u202e\u2028\x7f")


def test_wide_characters_take_two_places() -> None:
    assert terminal.cell_width("\x1b[32m日本\x1b[0m x") == 6
    assert terminal.truncate("日本語の名前", 7) == "日本語…"
    assert terminal.truncate("日本語", 6) == "日本語"


def test_a_name_is_one_line() -> None:
    assert terminal.escape_name("a\n\tb\x1b[2J") == "a\\n\\tb\\x1b[2J"


def test_symbols_that_the_terminal_has(monkeypatch: pytest.MonkeyPatch) -> None:
    assert terminal.symbol("…", "...") == "…"
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO(), encoding="latin-1"))
    assert terminal.symbol("…", "...") == "..." and terminal.symbol("±", "+-") == "±"
    assert terminal.truncate("a long line", 8) == "a lon..."
