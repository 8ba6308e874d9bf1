"""Words are split as a POSIX shell does."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.base.errors import UsageError
from roost.shell.command_words import quote_word, require_words, split_line

LINES = st.text(alphabet="ab-='\"\\ \t\nä")


@given(LINES)
def test_words_are_those_of_shlex(line: str) -> None:
    try:
        expected = shlex.split(line)
    except ValueError:
        assert split_line(line).open_quote
        with pytest.raises(UsageError):
            require_words(line)
        return
    assert [word.text for word in require_words(line)] == expected


@given(LINES)
def test_a_word_is_where_it_stands_in_the_line(line: str) -> None:
    words, open_quote = split_line(line)
    for word in words if not open_quote else words[:-1]:
        (again,) = split_line(line[word.start : word.end]).words
        assert (again.text, again.is_quoted) == (word.text, word.is_quoted)


@given(st.text())
def test_a_quoted_text_is_one_word_again_and_no_option(text: str) -> None:
    (word,) = require_words(quote_word(text))
    assert word.text == text and (word.is_quoted or not text.startswith("-"))


def test_an_open_quote_is_named(messages) -> None:  # type: ignore[no-untyped-def]
    for line in ("run -c 'a b", 'note T_1 "x', "run \\"):
        with pytest.raises(UsageError) as error:
            require_words(line)
        messages.check(error.value)
