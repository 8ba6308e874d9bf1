"""The threads of tasks that request no cores."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from roost.lab.policy.policy_state import Rules
from roost.lab.queue.task import Task
from roost.lab.scheduling.thread_share import with_thread_share
from tests.lab.policy.policy_examples import GB, cards, running, task

RULES = Rules(safety_mb=0)
OMP = "OMP_NUM_THREADS"


def planned(one: Task, **plan: Any) -> Task:
    return msgspec.structs.replace(one, plan={"env": {}, **plan})


def threads(one: Task, *, cores: int, count: int = 4) -> str | None:
    changed = with_thread_share(one, cards(count, gb=100), RULES, cores=cores)
    found: str | None = changed.plan.get("own_env", {}).get(OMP)
    return found


@pytest.mark.parametrize(
    ("gpus", "gb", "cores", "count", "share"),
    [
        (1, None, 16, 4, "4"),
        (2, None, 16, 4, "8"),
        (1, 49, 16, 1, "8"),
        (1, None, 2, 4, "1"),
        (1, 24.5, 2, 1, "1"),
    ],
)
def test_it_is_that_of_the_cards(gpus: int, gb: float | None, cores: int, count: int, share: str) -> None:
    """Four tasks on four cards, or on the four quarters of one, have a thread each on two cores."""
    one = planned(running(task("a", gpus=gpus, gb=gb), *range(gpus)))
    assert threads(one, cores=cores, count=count) == share


def test_whoever_has_chosen_keeps_their_number() -> None:
    of_two = running(task("a", cores=2), 0)
    assert threads(planned(of_two), cores=16) is None, "the submission has set it"
    one = running(task("a"), 0)
    assert threads(planned(one, env={OMP: "7"}), cores=16) is None
    assert threads(planned(one, is_command=True), cores=16) is None
    assert threads(planned(running(task("a", gpus=0))), cores=16) is None


def test_ranks_share_it() -> None:
    one = running(task("a", gpus=2), 0, 1)
    plan = with_thread_share(planned(one, ranks=[{OMP: "8"}, {OMP: "1"}]), cards(4), RULES, cores=16).plan
    assert plan["ranks"] == [{OMP: "4"}, {OMP: "1"}], "a smaller number is that of the settings"


def test_a_shared_card_counts_by_its_memory() -> None:
    one = planned(running(task("a", gb=20), 0))
    assert one.reserved_mb == 20 * GB and threads(one, cores=16, count=1) == "3"
