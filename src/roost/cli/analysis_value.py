"""What an analysis gave back, for a person: short lines, short numbers; result.json has all of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from roost.cli import terminal

_MOST_LINES = 30
_LONGEST_TEXT = 120


def lines(value: Any) -> list[str]:
    """A line for each name of a mapping, each item of a list and each row of a matrix.

    Args:
        value: As it stands in result.json.
    """
    found = _lines(value)
    if len(found) > _MOST_LINES:
        found[_MOST_LINES:] = [f"… {len(found) - _MOST_LINES} more lines"]
    return found


def _lines(value: Any) -> list[str]:
    if isinstance(value, str):
        return [_cut(line) for line in value.splitlines()]
    if isinstance(value, list) and value:
        return _items(value)
    if not isinstance(value, dict) or not value or _is_described(value):
        return [_text(value)]
    flat = {name: one for name, one in value.items() if not _is_deep(one)}
    found = _table(["", ""], [[name, _text(one)] for name, one in flat.items()])[1:] if flat else []
    for name, one in value.items():
        if name not in flat:
            found += [_cut(name), *(f"  {line}" for line in _items(one))]
    return found


def _is_deep(value: Any) -> bool:
    """Whether it is a list of lists or of mappings, which takes a line for each of these."""
    return isinstance(value, list) and any(isinstance(item, list | dict) for item in value)


def _items(items: Sequence[Any]) -> list[str]:
    first = items[0]
    if isinstance(first, list) and all(isinstance(row, list) and len(row) == len(first) for row in items):
        rows = [[_text(cell) for cell in row] for row in items]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return [
            _cut("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))
            for row in rows
        ]
    is_row = isinstance(first, dict) and first and not _is_described(first)
    if is_row and all(isinstance(item, dict) and item.keys() == first.keys() for item in items):
        return _table(list(first), [[_text(item[name]) for name in first] for item in items])
    return [_text(item) for item in items]


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [_cut(line) for line in terminal.columns(header, rows)]


def _is_described(value: Mapping[str, Any]) -> bool:
    """Whether it stands for a file, or for something that JSON cannot say."""
    return value.keys() in ({"file"}, {"file", "shape", "dtype"}, {"type", "repr"})


def _text(value: Any) -> str:
    return _cut(_whole(value))


def _whole(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.5g}"
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return f"[{', '.join(map(_whole, value))}]"
    if not isinstance(value, dict):
        return json.dumps(value)
    if not _is_described(value):
        return ", ".join(f"{name} {_whole(one)}" for name, one in value.items()) or "{}"
    if "repr" in value:
        return str(value["repr"])
    return (
        f"{value['file']}, {value['dtype']} of shape {tuple(value['shape'])}"
        if "shape" in value
        else str(value["file"])
    )


def _cut(text: str) -> str:
    """One harmless line of a sane length."""
    one = terminal.harmless(text.replace("\n", "\\n").replace("\t", "\\t"))
    return one if len(one) <= _LONGEST_TEXT else f"{one[: _LONGEST_TEXT - 1]}…"
