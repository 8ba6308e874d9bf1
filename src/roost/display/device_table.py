"""The table of devices: `roost devices`, and the same in the shells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from roost.display import table
from roost.display.table import Narrowing, TableColumn
from roost.operations.devices.device_list import DeviceList
from roost.operations.live_lab.card_cells import CardCells, card_cells, host_cells

_HEADER = ("GPU", "MODEL", "USED", "OF", "BUSY", "TEMP", "STATE", "WHO")
_SHORTENED: dict[str, tuple[int, Literal["wrapped"]]] = {"STATE": (10, "wrapped"), "WHO": (10, "wrapped")}
_MIN_WRAPPED = 38
"""Characters that the last two columns have together, if they need so many, before others are left out."""


def format_devices(devices: DeviceList, width: int | None) -> list[str]:
    """Returns the lines of the table: the cards, and the host. On a terminal STATE and WHO continue in
    further lines, so that no line is broken within a word; TEMP and BUSY are left out where these two would
    be too narrow.

    Args:
        devices: The devices.
        width: Of the terminal; None: no limit.
    """
    cells = [*map(card_cells, devices.cards), host_cells(devices.host)]
    rows = [row for one in cells for row in _rows(one)]
    columns: Iterator[tuple[str, Sequence[str]]] = zip(_HEADER, zip(*rows, strict=True), strict=True)
    return table.format_columns(
        [TableColumn(name, texts, *_SHORTENED.get(name, ())) for name, texts in columns],
        width,
        narrowing=[Narrowing(_MIN_WRAPPED, (("TEMP",), ("BUSY",)))],
    )


def _rows(cells: CardCells) -> Iterator[list[str]]:
    """Yields the row of a card, and one more row for each further task, lease or process on it."""
    first, *others = cells.users or ("",)
    yield [*cells[:7], first]
    for user in others:
        yield ["", "", "", "", "", "", "", user]
