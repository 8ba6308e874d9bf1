"""Finds the mistake in a text that is not JSON, where the person who wrote it made it, and its correction."""

from __future__ import annotations

import json
import re
from typing import NamedTuple

_PYTHON_WORDS = {"True": "true", "False": "false", "None": "null"}
_TYPOGRAPHIC_QUOTES = "\u201c\u201d\u201e\u2018\u2019\u201a\u00ab\u00bb"
_NUMBER_FIX = "write it in decimal, with digits on both sides of the point, and no 0 or + before it"


class JsonMistake(NamedTuple):
    """What is wrong, in which line, counted from 1, and what to write instead, if that is known."""

    problem: str
    line: int
    fix: str | None = None


def find_mistake(error: json.JSONDecodeError) -> JsonMistake:
    """Returns the mistake behind an error of the standard reader, which names what it expected, where it
    noticed: in the line after a forgotten comma."""
    text, noticed = error.doc, error.pos
    while noticed < len(text) and text[noticed].isspace():
        noticed += 1
    rest, before = text[noticed : noticed + 80], len(text[: error.pos].rstrip()) - 1
    return (
        _foreign_syntax(text, noticed, rest)
        or _wrong_character(error, noticed, rest)
        or _wrong_comma(error, noticed, rest, before)
        or _wrong_text(error, noticed, rest)
        or JsonMistake(error.msg, error.lineno)
    )


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def _foreign_syntax(text: str, noticed: int, rest: str) -> JsonMistake | None:
    """Returns a mistake of syntax that another language has, and an end in the middle."""
    line = _line(text, noticed)
    if not text.strip():
        return JsonMistake("the file is empty", 1, "write {} or settings into it")
    if not rest:
        end = len(text.rstrip())
        return JsonMistake("the file ends too early", _line(text, end), "add the closing } or ]")
    if rest.startswith(("//", "/*", "#")):
        return JsonMistake("there is a comment", line, "remove it: JSON has no comments")
    if rest[0] == "'":
        return JsonMistake("a text is in single quotes", line, "write it in double quotes")
    if word := re.match(r"(True|False|None)\b", rest):
        return JsonMistake(f"{word[0]} is a word of Python", line, f"write {_PYTHON_WORDS[word[0]]}")
    if word := re.match(r"(true|false|null)\b", rest, re.IGNORECASE):
        return JsonMistake(f"{word[0]} is not in small letters", line, f"write {word[0].lower()}")
    return None


def _wrong_character(error: json.JSONDecodeError, noticed: int, rest: str) -> JsonMistake | None:
    """Returns a character that JSON does not have, or a number that it writes in another way."""
    text, line = error.doc, _line(error.doc, noticed)
    for at in range(error.pos, noticed + 1):
        if text[at] not in " \t\r\n" and (text[at].isspace() or not text[at].isprintable()):
            problem = f"there is the invisible character U+{ord(text[at]):04X}"
            return JsonMistake(problem, _line(text, at), "remove it, or write a space")
    if rest[0] in _TYPOGRAPHIC_QUOTES:
        return JsonMistake("a text is in typographic quotes", line, 'write it in "')
    if rest[0] == ";":
        return JsonMistake("there is a semicolon", line, "write a comma, or nothing at the end")
    is_after_digit = noticed == error.pos and text[noticed - 1 : noticed].isdecimal()
    if (is_after_digit and rest[0] in "0123456789.xXeE_") or re.match(r"[+.]\.?\d", rest):
        return JsonMistake("a number is not as JSON has it", line, _NUMBER_FIX)
    return None


def _wrong_comma(error: json.JSONDecodeError, noticed: int, rest: str, before: int) -> JsonMistake | None:
    text = error.doc
    if "trailing comma" in error.msg:  # Python 3.13 notices it at the comma
        return JsonMistake("a comma has nothing after it", error.lineno, "remove the comma")
    if rest[0] == "," and text[before] == ",":
        return JsonMistake("there are two commas", _line(text, noticed), "remove one")
    if rest[0] in "}]" and text[before] == ",":
        return JsonMistake("a comma has nothing after it", _line(text, before), "remove the comma")
    if error.msg == "Expecting ',' delimiter":
        line = _line(text, before)
        is_line_end = line < _line(text, noticed)
        where = "at the end of this line" if is_line_end else f"before {rest.split()[0]}"
        return JsonMistake("a comma is missing", line, f"write it {where}")
    return None


def _wrong_text(error: json.JSONDecodeError, noticed: int, rest: str) -> JsonMistake | None:
    if error.msg.startswith("Invalid \\"):
        return JsonMistake("a text has a single backslash", error.lineno, "write two, or / in a path")
    if error.msg.startswith(("Invalid control character", "Unterminated string")):
        if error.doc[error.pos] == "\t":
            return JsonMistake("a text has a tab", error.lineno, "write \\t")
        return JsonMistake("a text does not end", error.lineno, 'write the closing "')
    line = _line(error.doc, noticed)
    if error.msg.startswith("Expecting property name") and rest[0].isalpha():
        return JsonMistake("a key is not in quotes", line, "write it in double quotes")
    if error.msg == "Expecting ':' delimiter":
        return JsonMistake("a key has no colon after it", line, 'write "key": value')
    if error.msg == "Expecting value" and rest[0].isalpha():
        return JsonMistake("a text is not in quotes", line, "write it in double quotes")
    if error.msg == "Extra data":
        return JsonMistake("something follows the end", line, "remove it, or a closing bracket before it")
    return None
