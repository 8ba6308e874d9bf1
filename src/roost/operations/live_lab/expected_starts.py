"""When pending tasks are expected to start, by the lab's own policy on a virtual clock.

The estimate ends running tasks when they are expected to end, and lets the policy place the first pending
tasks each time. It is honest about what is not known: a task whose run time is not known (it has no time
limit, and no equal task of its sweep has ended) keeps its cards for ever, so tasks that wait for them have no
expected start. It foresees no task that is submitted, stopped, held or preempted later.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from roost.base.errors import RoostError
from roost.devices.card import Card
from roost.lab.policy.decision import Policy
from roost.lab.policy.policy_state import Expectation, OtherLease, PolicyState, Rules
from roost.lab.queue.task import RUNNING, Task

MAX_PENDING = 50
"""Of so many pending tasks, the first ones, the start is estimated."""
_MAX_PASSES = 100
_END_DELAY_SECONDS = 1.0
"""A task that is over its expected end is expected to end after so long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueForecast:
    """What an estimate depends on.

    Args:
        now: Unix seconds.
        pending: The first pending tasks, in the order in which they are considered.
        live: The live tasks.
        ends: The expected end of live tasks, by id, as far as known.
        cards: The cards of the machine, with the processes that hold no lease.
        other_leases: By card: the leases that no live task holds.
        expected: The predicted memory and run time of pending tasks, by id.
        rules: Of the lab.
    """

    now: float
    pending: Sequence[Task]
    live: Sequence[Task]
    ends: Mapping[str, float] = field(default_factory=dict)
    cards: Sequence[Card] = ()
    other_leases: Mapping[str, Sequence[OtherLease]] = field(default_factory=dict)
    expected: Mapping[str, Expectation] = field(default_factory=dict)
    rules: Rules = field(default_factory=Rules)


def expected_starts(forecast: QueueForecast) -> dict[str, float]:
    """Returns the expected start of pending tasks (Unix seconds), by id; a task whose start is not known is
    left out."""
    # Live tasks use memory of their cards; only that of processes without a lease stays when they end.
    cards = [_without_lease_memory(card) for card in forecast.cards]
    pending = {task.id: task for task in forecast.pending[:MAX_PENDING]}
    live = {task.id: _with_end(task, forecast) for task in forecast.live}
    ends = [
        (max(forecast.now + _END_DELAY_SECONDS, end), id) for id, end in forecast.ends.items() if id in live
    ]
    heapq.heapify(ends)
    state = PolicyState(
        now=forecast.now,
        pending=(),
        cards=cards,
        other_leases=forecast.other_leases,
        expected=forecast.expected,
        rules=forecast.rules,
    )
    policy, found = Policy(), dict[str, float]()
    for _ in range(_MAX_PASSES):
        state = replace(state, pending=list(pending.values()), live=list(live.values()))
        try:
            placements = policy.decide(state).placements
        except RoostError:
            break
        for placement in placements:
            task = pending.pop(placement.task)
            found[task.id] = state.now
            live[task.id] = msgspec.structs.replace(
                task, state=RUNNING, cards=placement.cards, reserved_mb=placement.mb, started=state.now
            )
            seconds = _run_seconds(task, forecast)
            if seconds is not None:
                heapq.heappush(ends, (state.now + seconds, task.id))
        if not pending or not ends:
            break
        now = ends[0][0]
        while ends and ends[0][0] <= now:
            live.pop(heapq.heappop(ends)[1], None)
        state = replace(state, now=now)
    return found


def _without_lease_memory(card: Card) -> Card:
    used = sum(user.memory_mb or 0 for user in card.users)
    return replace(card, free_mb=max(0, card.total_mb - used))


def _with_end(task: Task, forecast: QueueForecast) -> Task:
    """Returns a live task whose time limit is its expected run time, from which the policy takes its end."""
    end = forecast.ends.get(task.id)
    if end is None or task.started is None:
        return task
    seconds = max(forecast.now + _END_DELAY_SECONDS, end) - task.started
    return msgspec.structs.replace(task, need=msgspec.structs.replace(task.need, time_limit=seconds))


def _run_seconds(task: Task, forecast: QueueForecast) -> float | None:
    if task.need.time_limit is not None:
        return task.need.time_limit
    expected = forecast.expected.get(task.id)
    return None if expected is None else expected.seconds
