"""The card memory that pending tasks will get, as the daemon predicts it."""

from __future__ import annotations

from collections.abc import Sequence

from roost.base.errors import RoostError
from roost.devices import inventory
from roost.devices.card import Card
from roost.lab.memory.expectations import Expectations
from roost.lab.memory.memory_prediction import UNKNOWN_MEMORY, MemoryReservation
from roost.lab.policy.card_capacity import Shape
from roost.lab.policy.policy_state import Rules
from roost.lab.queue.queue_store import QueueStore
from roost.lab.queue.task import Task
from roost.lab.scheduling.site_rules import read_rules


def expected_memory(store: QueueStore, tasks: Sequence[Task]) -> dict[str, MemoryReservation]:
    """Returns the memory of each card for these pending tasks, by id, and why it is that. If the driver does
    not answer, as if nothing was learned.

    Args:
        store: The queue.
        tasks: Pending tasks with cards.
    """
    try:
        cards = inventory.read_cards()
    except RoostError:
        cards = []
    return expected_memory_on(cards, tasks, Expectations(store), read_rules(store))


def expected_memory_on(
    cards: Sequence[Card], tasks: Sequence[Task], expectations: Expectations, rules: Rules
) -> dict[str, MemoryReservation]:
    """Returns the same for known cards.

    Args:
        cards: The cards of the machine; empty: nothing was learned.
        tasks: Pending tasks with cards.
        expectations: Of the queue; they are kept from call to call.
        rules: Of the lab.
    """
    learned = expectations.for_tasks(tasks, cards, rules) if cards else {}
    found: dict[str, MemoryReservation] = {}
    for task in tasks:
        need, expected = task.need, learned.get(task.id)
        learned_mb = None if expected is None else expected.memory_mb
        shape = Shape.from_need(need, learned_mb)
        if need.whole:
            reason = "after it ran out of memory" if need.ran_out else "as requested"
        elif need.least_mb and shape.mb == need.least_mb:
            reason = "after it ran out of memory with less"
        else:
            by_request = UNKNOWN_MEMORY if need.memory_mb is None else "as requested"
            reason = by_request if learned_mb is None else expectations.memory_reason(task)
        found[task.id] = MemoryReservation(None if shape.whole else shape.mb, reason)
    return found
