"""The cards that tasks of a queue hold, in the table ``allocation``. Each function is a part of the caller's
transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from roost.devices.card import Card


def refusal_reason(
    connection: sqlite3.Connection, card: Card, mb: int | None, most_per_card: int | None, spare_mb: int
) -> str:
    """Returns why a card cannot be assigned to one more task; empty if it can.

    Args:
        connection: The queue.
        card: The card; if its memory is not known, only its tasks are counted.
        mb: The memory that the task would get; None: the whole card.
        most_per_card: The maximum number of tasks on the card; None: no limit.
        spare_mb: The memory of the card that no task gets.
    """
    held = [row[0] for row in connection.execute("SELECT mb FROM allocation WHERE card = ?", (card.id,))]
    if held and (mb is None or None in held):
        return f"the card {card.id} is assigned already"
    if held and card.exclusive:
        return f"the card {card.id} allows one process at a time, and is assigned already"
    if most_per_card is not None and len(held) >= most_per_card:
        return f"the card {card.id} has {len(held)} tasks already"
    free_mb = card.total_mb - spare_mb - sum(held)
    if card.total_mb and mb is not None and mb > free_mb:
        return f"the card {card.id} has {free_mb} MB left, not {mb}"
    return ""


def assign(connection: sqlite3.Connection, task: str, cards: Sequence[str], mb: int | None) -> None:
    """Assigns cards to a task, in the order of its ``CUDA_VISIBLE_DEVICES``.

    Args:
        connection: The queue.
        task: The id of the task.
        cards: The ids of the cards.
        mb: The memory on each card; None: the whole card.
    """
    sql = "INSERT INTO allocation (task, place, card, mb) VALUES (?, ?, ?, ?)"
    connection.executemany(sql, [(task, place, card, mb) for place, card in enumerate(cards)])


def release(connection: sqlite3.Connection, task: str) -> None:
    """Releases all cards of a task."""
    connection.execute("DELETE FROM allocation WHERE task = ?", (task,))
