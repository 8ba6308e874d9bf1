"""Which cards the tasks of a queue hold. Each function is a part of the caller's transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from roost.devices.card import Card


def why_not(
    connection: sqlite3.Connection, card: Card, mb: int | None, most_per_card: int | None, spare_mb: int
) -> str:
    """Why a card cannot be given to one task more; empty when it can.

    Args:
        connection: The queue.
        card: The card; of one whose memory is not known only its tasks are counted.
        mb: What the task would get; None: the whole.
        most_per_card: So many tasks may be on it.
        spare_mb: So much of it is nobody's.
    """
    held = [row[0] for row in connection.execute("SELECT mb FROM allocation WHERE card = ?", (card.id,))]
    if held and (mb is None or None in held):
        return f"the card {card.id} is held already"
    if held and card.exclusive:
        return f"the card {card.id} takes one process at a time, and is held already"
    if most_per_card is not None and len(held) >= most_per_card:
        return f"the card {card.id} has {len(held)} tasks already"
    room = card.total_mb - spare_mb - sum(held)
    if card.total_mb and mb is not None and mb > room:
        return f"the card {card.id} has {room} MB left, not {mb}"
    return ""


def give(connection: sqlite3.Connection, task: str, cards: Sequence[str], mb: int | None) -> None:
    """Notes what a task holds, in the order in which it sees its cards."""
    sql = "INSERT INTO allocation (task, place, card, mb) VALUES (?, ?, ?, ?)"
    connection.executemany(sql, [(task, place, card, mb) for place, card in enumerate(cards)])


def free(connection: sqlite3.Connection, task: str) -> None:
    """Takes back all that a task holds."""
    connection.execute("DELETE FROM allocation WHERE task = ?", (task,))
