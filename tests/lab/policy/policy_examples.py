"""Tasks and cards for the tests of the policy."""

from __future__ import annotations

from typing import Any

import msgspec

from roost.devices.card import Card
from roost.devices.resource_request import ResourceRequest
from roost.lab.policy import reason_codes
from roost.lab.policy.decision import decide
from roost.lab.policy.policy_state import Decision, PolicyState
from roost.lab.queue.task import PENDING, RUNNING, Task

NOW = 1_795_000_000.0
GB = 1024


def card(number: int, gb: int = 24, **other: Any) -> Card:
    given = {"name": "RTX 4090", "free_mb": gb * GB, **other}
    return Card(number=number, id=f"GPU-{number}", total_mb=gb * GB, **given)


def cards(count: int, gb: int = 24) -> list[Card]:
    return [card(number, gb) for number in range(count)]


def task(
    id: str, *, gpus: int = 1, gb: float | None = None, limit: float | None = None, **other: Any
) -> Task:
    """Submitted ten minutes ago; of cards, whole ones unless ``gb`` says otherwise."""
    need = ResourceRequest(
        cards=gpus,
        cores=other.pop("cores", None),
        host_memory_mb=other.pop("host_mb", None),
        memory_mb=None if gb is None else int(gb * GB),
        whole=other.pop("whole", False),
        time_limit=limit,
        opportunistic=other.pop("opportunistic", False),
    )
    known = {"user": "ann", "state": PENDING, "submitted": NOW - 600, "name": f"train-{id}", "package": ""}
    return Task(id=id, need=need, **{**known, **other})


def running(one: Task, *numbers: int, started: float = NOW - 60, state: str = RUNNING) -> Task:
    """Returns the task as it runs on these cards."""
    mb = None if one.need.whole else one.need.memory_mb
    on = tuple(f"GPU-{number}" for number in numbers)
    return msgspec.structs.replace(one, state=state, cards=on, reserved_mb=mb, started=started)


def decided(*pending: Task, **state: Any) -> Decision:
    return decide(PolicyState(now=NOW, pending=pending, **state))


def placed(decision: Decision) -> dict[str, tuple[int, ...]]:
    """Returns the card numbers of each task that starts."""
    return {one.task: tuple(int(card[4:]) for card in one.cards) for one in decision.placements}


def says(reason: str, code: str, *facts: str) -> bool:
    """Whether a reason has this code and names these facts."""
    return reason_codes.reason_code(reason) == code and all(fact in reason for fact in facts)
