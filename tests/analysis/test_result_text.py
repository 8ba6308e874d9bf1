"""What an analysis gave back, as lines."""

from __future__ import annotations

from typing import Any

import pytest

from roost.analysis.result_text import format_value


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, ["null"]),
        (0.98765432109, ["0.98765"]),
        (123456, ["123456"]),
        ("two\nlines\x1b[2J", ["two", "lines\\x1b[2J"]),
        ([], ["[]"]),
        ({}, ["{}"]),
        ({"a": 1.23456789e-7, "b": [0.1234567, True, None]}, ["a  1.2346e-07", "b  [0.12346, true, null]"]),
        ([[1, 20], [300, 4]], ["  1  20", "300   4"]),
        ([[1, 2], [3]], ["[1, 2]", "[3]"]),
        ([1, "a\nb"], ["1", "a\\nb"]),
        ([{"at": 7, "x": 1.23456789}, {"x": 1.0, "at": 1024}], ["at    x", "7     1.2346", "1024  1"]),
        ([{"a": 1}, {"b": 2}], ["a 1", "b 2"]),
        ({"n": 5, "matrix": [[1, 2]], "all": 0.5}, ["n    5", "all  0.5", "matrix", "  1  2"]),
        ({"x": {"y": 1.5, "z": [1]}}, ["x  y 1.5, z [1]"]),
        ({"file": "a.png"}, ["a.png"]),
        ([{"file": "a.png"}], ["a.png"]),
        ({"type": "m.C", "repr": "C()"}, ["C()"]),
        ({"file": "mine", "other": 1}, ["file   mine", "other  1"]),
    ],
)  # fmt: skip
def test_each_kind(value: Any, shown: list[str]) -> None:
    assert format_value(value) == shown


def test_an_array() -> None:
    (line,) = format_value({"file": "a.npy", "shape": [2, 3], "dtype": "int8"})
    assert line.startswith("a.npy, int8 ") and line.endswith(" (2, 3)")


def test_never_more_than_a_screen() -> None:
    found = format_value([[0.1 * i] * 400 for i in range(1000)])
    assert len(found) == 31 and found[-1].startswith("… 970 ")
    assert all(len(line) <= 120 for line in found) and found[0].endswith("…")
    assert format_value("x" * 500) == ["x" * 119 + "…"]
    assert all(len(line) <= 120 for line in format_value({"name" * 50: [{"a" * 90: "b" * 90}]}))
