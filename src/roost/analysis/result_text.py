"""The value that an analysis returned as short lines with short numbers, for a terminal and for the output of
an analyzer; result.json holds all of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from roost.base.text.terminal_text import escape_control

_MAX_LINES = 30
_MAX_CHARACTERS = 120


def format_value(value: Any) -> list[str]:
    """Returns a line for each name of a mapping, each item of a list and each row of a matrix.

    Args:
        value: The value as result.json stores it.
    """
    found = _value_lines(value)
    if len(found) > _MAX_LINES:
        found[_MAX_LINES:] = [f"… {len(found) - _MAX_LINES} more lines"]
    return found


def _value_lines(value: Any) -> list[str]:
    if isinstance(value, str):
        return [_truncate(line) for line in value.splitlines()]
    if isinstance(value, list) and value:
        return _list_lines(value)
    if not isinstance(value, dict) or not value or _is_placeholder(value):
        return [_format_truncated(value)]
    flat = {name: one for name, one in value.items() if not _is_nested_list(one)}
    found = (
        _table(["", ""], [[name, _format_truncated(one)] for name, one in flat.items()])[1:] if flat else []
    )
    for name, one in value.items():
        if name not in flat:
            found += [_truncate(name), *(f"  {line}" for line in _list_lines(one))]
    return found


def _is_nested_list(value: Any) -> bool:
    """Whether the value is a list of lists or of mappings, which takes a line for each item."""
    return isinstance(value, list) and any(isinstance(item, list | dict) for item in value)


def _list_lines(items: Sequence[Any]) -> list[str]:
    first = items[0]
    if isinstance(first, list) and all(isinstance(row, list) and len(row) == len(first) for row in items):
        rows = [[_format_truncated(cell) for cell in row] for row in items]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return [
            _truncate("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))
            for row in rows
        ]
    is_row = isinstance(first, dict) and first and not _is_placeholder(first)
    if is_row and all(isinstance(item, dict) and item.keys() == first.keys() for item in items):
        return _table(list(first), [[_format_truncated(item[name]) for name in first] for item in items])
    return [_format_truncated(item) for item in items]


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns the lines of a table, whose columns are as wide as their cells."""
    cells = [[_single_line(cell) for cell in row] for row in (header, *rows)]
    widths = [max(map(_width, column)) for column in zip(*cells, strict=True)]
    return [
        _truncate(
            "  ".join(
                cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True)
            ).rstrip()
        )
        for row in cells
    ]


def _width(text: str) -> int:
    """Returns the places that a text takes on a terminal: a Chinese character takes two."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _single_line(text: str) -> str:
    return escape_control(text.replace("\n", "\\n").replace("\t", "\\t"))


def _is_placeholder(value: Mapping[str, Any]) -> bool:
    """Whether the mapping describes a file, or a value that JSON cannot represent."""
    return value.keys() in ({"file"}, {"file", "shape", "dtype"}, {"type", "repr"})


def _format_truncated(value: Any) -> str:
    return _truncate(_format(value))


def _format(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.5g}"
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return f"[{', '.join(map(_format, value))}]"
    if not isinstance(value, dict):
        return json.dumps(value)
    if not _is_placeholder(value):
        return ", ".join(f"{name} {_format(one)}" for name, one in value.items()) or "{}"
    if "repr" in value:
        return str(value["repr"])
    return (
        f"{value['file']}, {value['dtype']} of shape {tuple(value['shape'])}"
        if "shape" in value
        else str(value["file"])
    )


def _truncate(text: str) -> str:
    """Escapes line ends and control characters, and truncates the line."""
    one = _single_line(text)
    return one if len(one) <= _MAX_CHARACTERS else f"{one[: _MAX_CHARACTERS - 1]}…"
