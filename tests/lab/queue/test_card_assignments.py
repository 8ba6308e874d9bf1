"""The cards that tasks hold."""

from __future__ import annotations

import dataclasses
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from roost.lab.queue import card_assignments
from roost.lab.queue.queue_store import QueueStore
from tests.lab.queued import card, task
from tests.messages import Messages


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A queue in which t0 holds 10 GB of GPU-0, and t1 all of GPU-1."""
    with QueueStore.open(tmp_path / "lab") as store:
        store.submit([task(id="t0"), task(id="t1")])
    connection = sqlite3.connect(tmp_path / "lab" / "lab.db", isolation_level=None)
    card_assignments.assign(connection, "t0", ["GPU-0"], 10_000)
    card_assignments.assign(connection, "t1", ["GPU-1"], None)
    yield connection
    connection.close()


@pytest.mark.parametrize(
    ("number", "mb", "most", "spare", "facts"),
    [
        (0, 14_000, None, 0, []),
        (0, 14_000, 2, 0, []),
        (0, 14_001, None, 0, ["GPU-0", "14000 MB", "14001"]),
        (0, 14_000, None, 1, ["GPU-0", "13999 MB", "14000"]),
        (0, 1, 1, 0, ["GPU-0", "1"]),
        (0, None, None, 0, ["GPU-0"]),
        (1, 1, None, 0, ["GPU-1"]),
        (1, None, None, 0, ["GPU-1"]),
        (2, None, 1, 500, []),
        (2, 24_000, 1, 0, []),
        (2, 24_000, 1, 500, ["GPU-2", "23500 MB", "24000"]),
    ],
)
def test_a_card_accepts_tasks_up_to_its_memory(
    connection: sqlite3.Connection,
    number: int,
    mb: int | None,
    most: int | None,
    spare: int,
    facts: list[str],
    messages: Messages,
) -> None:
    found = card_assignments.refusal_reason(connection, card(number), mb, most, spare)
    assert bool(found) == bool(facts) and all(fact in found for fact in facts)
    if found:
        messages.check(found)


def test_on_a_card_of_unknown_memory_tasks_are_counted(
    connection: sqlite3.Connection, messages: Messages
) -> None:
    assert card_assignments.refusal_reason(connection, card(0, total_mb=0), 99_000, 2, 0) == ""
    messages.check(card_assignments.refusal_reason(connection, card(0, total_mb=0), 1, 1, 0))


def test_an_exclusive_card_accepts_one_task(connection: sqlite3.Connection, messages: Messages) -> None:
    held, free = (dataclasses.replace(card(number), exclusive=True) for number in (0, 2))
    messages.check(card_assignments.refusal_reason(connection, held, 1, None, 0))
    assert card_assignments.refusal_reason(connection, free, 1, None, 0) == ""


def test_a_released_card_can_be_assigned_again(connection: sqlite3.Connection) -> None:
    card_assignments.release(connection, "t1")
    assert card_assignments.refusal_reason(connection, card(1), None, None, 0) == ""


def test_a_task_that_is_not_queued_gets_no_card(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA foreign_keys = ON")
    with pytest.raises(sqlite3.IntegrityError):
        card_assignments.assign(connection, "unknown", ["GPU-3"], None)
