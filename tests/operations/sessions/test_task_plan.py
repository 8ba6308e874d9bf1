"""What the lab will start, made from a request."""

from __future__ import annotations

from typing import Any

import pytest

from roost.base.errors import ConfigError, UsageError
from roost.config.settings import Settings, parse_settings
from roost.lab.queue.task import ResourceRequest
from roost.operations.queue.resources import TaskOptions
from roost.operations.sessions import task_plan
from tests.messages import Messages
from tests.operations.packages import VALUES


def settings(**values: Any) -> Settings:
    return parse_settings({**VALUES, **values})


def computing(
    devices: Any = "auto", *, cards: int = 0, simulated: bool = True, **given: Any
) -> dict[str, Any]:
    wanted = TaskOptions(
        need=ResourceRequest(cards=cards), simulated=simulated, strategy=given.pop("asked", None)
    )
    return task_plan.rank_request(wanted, settings(**given), devices=devices, where=lambda key: None)


@pytest.mark.parametrize(
    ("given", "device", "strategy", "ranks"),
    [
        ({}, "cpu", "single", 1),
        ({"cards": 1}, "cpu", "single", 1),
        ({"cards": 1, "simulated": False}, "cuda", "single", 1),
        ({"cards": 3, "simulated": False}, "cuda", "ddp", 3),
        ({"cards": 3, "asked": "single"}, "cpu", "single", 1),
        ({"cards": 2, "strategy": "fsdp"}, "cpu", "fsdp", 2),
        ({"devices": 2}, "cpu", "ddp", 2),
        ({"devices": [0, 1], "cards": 0}, "cpu", "single", 1),
        ({"devices": 4, "cards": 1}, "cpu", "single", 1),
    ],
)
def test_what_it_computes_with(given: dict[str, Any], device: str, strategy: str, ranks: int) -> None:
    found = computing(**given)
    assert (found["device"], found["strategy"], found["ranks"], found["cards"]) == (
        device,
        strategy,
        ranks,
        None,
    )


def test_what_contradicts_itself(messages: Messages) -> None:
    with pytest.raises(UsageError) as refused:
        computing(2, asked="single")
    messages.check(refused.value)
    with pytest.raises(ConfigError):
        computing(cards=2, step_mode="fast")
