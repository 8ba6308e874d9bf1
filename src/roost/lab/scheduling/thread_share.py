"""The threads of a task that requests no CPU cores: the share of the cores that equals its share of the
cards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from roost.base.system.worker_protocol import THREADS_VARIABLE
from roost.devices.card import Card
from roost.lab.policy.card_capacity import capacity_mb, usable
from roost.lab.policy.policy_state import Rules
from roost.lab.queue.task import Task


def with_thread_share(task: Task, cards: Sequence[Card], rules: Rules, *, cores: int) -> Task:
    """Returns a task whose plan bounds the threads of its training, unless it takes no card, or the caller
    has requested cores or set `THREADS_VARIABLE`. The bound does not depend on other tasks: another number of
    threads may give other bits.

    Args:
        task: A task that has its cards and is about to start.
        cards: All cards of the machine.
        rules: Which of them tasks may have, and how much of each.
        cores: The cores of the machine.
    """
    plan = task.plan
    given = {**plan.get("env", {}), **plan.get("own_env", {})}
    if not task.cards or task.need.cores is not None or plan.get("is_command") or THREADS_VARIABLE in given:
        return task
    threads = max(1, int(cores * _card_share(task, cards, rules)))
    changes: dict[str, Any] = {"own_env": {**plan.get("own_env", {}), THREADS_VARIABLE: str(threads)}}
    if ranks := plan.get("ranks"):
        changes["ranks"] = [_bounded(rank, max(1, threads // len(ranks))) for rank in ranks]
    return msgspec.structs.replace(task, plan={**plan, **changes})


def _card_share(task: Task, cards: Sequence[Card], rules: Rules) -> float:
    """Returns which fraction of all cards a task has; a part of the memory is that part of its card."""
    found = usable(cards, rules)
    own = [card for card in found if card.id in task.cards]
    if task.reserved_mb is None:
        return len(own) / max(1, len(found))
    return sum(task.reserved_mb / capacity_mb(card, rules) for card in own) / max(1, len(found))


def _bounded(rank: Mapping[str, str], threads: int) -> dict[str, str]:
    """Returns the environment of a rank, whose number of threads is bounded."""
    before = rank.get(THREADS_VARIABLE, "")
    return {**rank, THREADS_VARIABLE: str(min(threads, int(before)) if before.isdecimal() else threads)}
