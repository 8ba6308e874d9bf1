"""Tables of one run, or of many, for pandas, Arrow and notebooks. roost itself needs none of these."""

from __future__ import annotations

import html
import importlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from roost.base.errors import Refused

Columns = Mapping[str, Sequence[Any]]
"""Values by the name of the column, all of one length; None where there is no value."""
_MAX_CELL = 32


def to_pandas(columns: Columns, index: str) -> Any:
    """Returns the columns as a ``pandas.DataFrame``.

    Args:
        columns: The columns.
        index: The column that becomes the index.

    Raises:
        Refused: pandas is not installed.
    """
    frame = _library("pandas").DataFrame(dict(columns))
    return frame.set_index(index)


def to_arrow(columns: Columns) -> Any:
    """Returns the columns as a ``pyarrow.Table``. A column with values of different types, which Arrow does
    not have, holds their JSON texts.

    Raises:
        Refused: pyarrow is not installed.
    """
    arrow = _library("pyarrow")
    arrays = {}
    for name, values in columns.items():
        try:
            arrays[name] = arrow.array(values)
        except (arrow.ArrowInvalid, arrow.ArrowTypeError):
            arrays[name] = arrow.array([None if one is None else json.dumps(one) for one in values])
    return arrow.table(arrays)


def to_html(
    title: str, header: Sequence[str], lines: Sequence[Sequence[str]], below: Sequence[str] = ()
) -> str:
    """Returns a table for a notebook, escaped; without lines only its title."""
    if not lines:
        return _element("p", title)
    rows = ["".join(_element("th", cell) for cell in header)]
    rows += ["".join(_element("td", cell) for cell in cells) for cells in lines]
    table = "".join(f"<tr>{row}</tr>" for row in rows)
    return "".join(
        [_element("p", title), f"<table>{table}</table>", *(_element("p", line) for line in below)]
    )


def align(header: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    """Returns the lines of a table as text, the header first; none without lines."""
    if not lines:
        return []
    widths = [max(len(cells[at]) for cells in (header, *lines)) for at in range(len(header))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
        for cells in (header, *lines)
    ]


def format_cell(value: Any) -> str:
    """Returns a value as one short line; None as an empty one."""
    text = "" if value is None else f"{value:.5g}" if isinstance(value, float) else str(value)
    line = text if text.isprintable() else ascii(text)
    return line if len(line) <= _MAX_CELL else line[: _MAX_CELL - 1] + "…"


def _element(tag: str, text: str) -> str:
    return f"<{tag}>{html.escape(text)}</{tag}>"


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise Refused("is not installed here", received=name, fix=f"pip install {name}") from None
