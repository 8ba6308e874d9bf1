"""Which cards are held."""

from __future__ import annotations

import dataclasses
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from roost.lab import allotment
from roost.lab.store import Store
from tests.lab.queued import card, task


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A queue in which t0 holds 10 GB of GPU-0, and t1 all of GPU-1."""
    with Store.open(tmp_path / "lab") as store:
        store.submit([task(id="t0"), task(id="t1")])
    connection = sqlite3.connect(tmp_path / "lab" / "lab.db", isolation_level=None)
    allotment.give(connection, "t0", ["GPU-0"], 10_000)
    allotment.give(connection, "t1", ["GPU-1"], None)
    yield connection
    connection.close()


@pytest.mark.parametrize(
    ("number", "mb", "most", "spare", "why"),
    [
        (0, 14_000, None, 0, ""),
        (0, 14_000, 2, 0, ""),
        (0, 14_001, None, 0, "the card GPU-0 has 14000 MB left, not 14001"),
        (0, 14_000, None, 1, "the card GPU-0 has 13999 MB left, not 14000"),
        (0, 1, 1, 0, "the card GPU-0 has 1 tasks already"),
        (0, None, None, 0, "the card GPU-0 is held already"),
        (1, 1, None, 0, "the card GPU-1 is held already"),
        (1, None, None, 0, "the card GPU-1 is held already"),
        (2, None, 1, 500, ""),
        (2, 24_000, 1, 0, ""),
        (2, 24_000, 1, 500, "the card GPU-2 has 23500 MB left, not 24000"),
    ],
)
def test_a_card_takes_what_it_has_room_for(
    connection: sqlite3.Connection, number: int, mb: int | None, most: int | None, spare: int, why: str
) -> None:
    assert allotment.why_not(connection, card(number), mb, most, spare) == why


def test_of_a_card_without_memory_of_its_own_tasks_are_counted(connection: sqlite3.Connection) -> None:
    assert allotment.why_not(connection, card(0, total_mb=0), 99_000, 2, 0) == ""
    assert "1 tasks already" in allotment.why_not(connection, card(0, total_mb=0), 1, 1, 0)


def test_a_card_of_one_process_at_a_time_takes_one_task(connection: sqlite3.Connection) -> None:
    held, free = (dataclasses.replace(card(number), exclusive=True) for number in (0, 2))
    assert "takes one process at a time" in allotment.why_not(connection, held, 1, None, 0)
    assert allotment.why_not(connection, free, 1, None, 0) == ""


def test_what_is_freed_can_be_given_again(connection: sqlite3.Connection) -> None:
    allotment.free(connection, "t1")
    assert allotment.why_not(connection, card(1), None, None, 0) == ""


def test_nobody_who_is_not_queued_holds_any(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA foreign_keys = ON")
    with pytest.raises(sqlite3.IntegrityError):
        allotment.give(connection, "nobody", ["GPU-3"], None)
