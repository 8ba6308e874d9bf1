"""The words of a command line, by the quoting rules of a POSIX shell."""

from __future__ import annotations

from typing import NamedTuple

from roost.base.errors import UsageError

_QUOTES = "'\""
_ESCAPED_IN_DOUBLE_QUOTES = '"\\'
_BLANKS = " \t\r\n"


class TypedWord(NamedTuple):
    """A word of a command line."""

    text: str
    """Without its quotes and backslashes."""
    start: int
    """Where it begins in the line."""
    end: int
    """Where it ends in the line."""
    is_quoted: bool
    """Whether its first character is quoted or escaped: such a word is never an option."""


class SplitLine(NamedTuple):
    """The words of a line, and what is open at its end."""

    words: list[TypedWord]
    open_quote: str
    """The quote, or backslash, to which the line has no second one; empty: none."""


def split_line(line: str) -> SplitLine:
    """Returns the words of a line. With an open quote, the last word is what follows it."""
    words: list[TypedWord] = []
    position = 0
    while position < len(line):
        if line[position] in _BLANKS:
            position += 1
            continue
        word, open_quote = _read_word(line, position)
        words.append(word)
        if open_quote:
            return SplitLine(words, open_quote)
        position = word.end
    return SplitLine(words, "")


def require_words(line: str) -> list[TypedWord]:
    """Returns the words of a line.

    Raises:
        UsageError: A quote is not closed.
    """
    words, open_quote = split_line(line)
    if open_quote == "\\":
        raise UsageError("the line ends with a backslash", fix=r"write \\ for a backslash")
    if open_quote:
        fix = f"close it, or write \\{open_quote}"
        raise UsageError(f"a quote {open_quote} is not closed", received=line[words[-1].start :], fix=fix)
    return words


def quote_word(text: str) -> str:
    """Returns a text as one word, quoted only where it must be."""
    special = (*_QUOTES, "\\", *_BLANKS)
    if text and not text.startswith("-") and not any(one in text for one in special):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _read_word(line: str, start: int) -> tuple[TypedWord, str]:
    """Returns the word that begins at a position, and what is open at its end."""
    parts: list[str] = []
    quote, position = "", start
    while position < len(line):
        letter = line[position]
        following = line[position + 1 : position + 2]
        if quote:
            if letter == quote:
                quote = ""
            elif letter == "\\" and quote == '"' and following and following in _ESCAPED_IN_DOUBLE_QUOTES:
                parts.append(following)
                position += 1
            else:
                parts.append(letter)
        elif letter in _QUOTES:
            quote = letter
        elif letter == "\\":
            if not following:
                quote = letter
            parts.append(following)
            position += 1
        elif letter in _BLANKS:
            break
        else:
            parts.append(letter)
        position += 1
    end = min(position, len(line))
    return TypedWord("".join(parts), start, end, line[start] in (*_QUOTES, "\\")), quote
