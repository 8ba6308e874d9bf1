from __future__ import annotations

import json

import pytest

from roost.base.json_mistake import JsonMistake, find_mistake


def mistake(text: str) -> JsonMistake:
    with pytest.raises(json.JSONDecodeError) as refused:
        json.loads(text)
    return find_mistake(refused.value)


@pytest.mark.parametrize(
    ("text", "line", "problem", "fix"),
    [
        ('{\n"a": 1\n"b": 2}', 2, "a comma is missing", "at the end of this line"),
        ('{"a": [1\n\n, 2 3]}', 3, "a comma is missing", "before 3]}"),
        ('{\n"a": 1,\n\n}', 2, "a comma has nothing after it", "remove the comma"),
        ('{\n"a": [1,\n]}', 2, "a comma has nothing after it", "remove the comma"),
        ('{\n"a": 1, // the first\n"b": 2}', 2, "a comment", "remove it"),
        ('{"a": 1,\n# the second\n"b": 2}', 2, "a comment", "remove it"),
        ("{'a': 1}", 1, "single quotes", "double quotes"),
        ("{\n\"a\": 'b'}", 2, "single quotes", "double quotes"),
        ('{\n"a": True}', 2, "True is a word of Python", "write true"),
        ('{"a": [False, 1]}', 1, "False is a word of Python", "write false"),
        ('{"a": None}', 1, "None is a word of Python", "write null"),
        ("", 1, "empty", "{}"),
        ("\n \n", 1, "empty", "{}"),
        ('{\n"a": [1, 2\n', 2, "ends too early", "closing"),
        ('{\n"a": \n\n', 2, "ends too early", "closing"),
        ('{\n"a": "C:\\data"}', 2, "a single backslash", "two"),
        ('{\n"a": "b,\n"c": 1}', 2, "a text does not end", 'the closing "'),
        ('{"a": "b', 1, "a text does not end", 'the closing "'),
        ('{"a": "b\tc"}', 1, "a tab", "\\t"),
        ("{\na: 1}", 2, "a key is not in quotes", "double quotes"),
        ('{"a": b}', 1, "a text is not in quotes", "double quotes"),
        ('{"a" 1}', 1, "no colon", '"key": value'),
        ('{"a": 1}\n}', 2, "something follows the end", "remove it"),
        ('{"a": TRUE}', 1, "not in small letters", "write true"),
        ('{"a": 01}', 1, "a number", "decimal"),
        ('{"a": 0x10}', 1, "a number", "decimal"),
        ('{"a": .5}', 1, "a number", "decimal"),
        ('{"a": +1}', 1, "a number", "decimal"),
        ('{"a": 1.}', 1, "a number", "decimal"),
        ('{"a": 1_000}', 1, "a number", "decimal"),
        ('{"a": 1;\n"b": 2}', 1, "a semicolon", "a comma"),
        ('{"a": 1,, "b": 2}', 1, "there are two commas", "remove one"),
        ("{\u201ca\u201d: 1}", 1, "typographic quotes", '"'),
        ('{\n"a":\u00a01}', 2, "U+00A0", "remove it"),
        ('{"a": \x1b1}', 1, "U+001B", "remove it"),
    ],
)
def test_the_line_and_the_correction_of_a_mistake(text: str, line: int, problem: str, fix: str) -> None:
    """The standard reader names the line in which it noticed, often the one after the mistake."""
    found = mistake(text)
    assert found.line == line and problem in found.problem
    assert found.fix is not None and fix in found.fix


def test_any_other_mistake_has_the_words_of_the_reader() -> None:
    assert mistake('{"a": -}') == JsonMistake("Expecting value", 1)
