"""Cores and memory of the host, as they are given out."""

from __future__ import annotations

import math

import msgspec
import pytest

from roost.lab.policy.host_capacity import HostCapacity
from roost.lab.policy.host_share import HostShare
from roost.lab.policy.policy_state import Rules
from roost.lab.queue.task import STOPPING, Task
from tests.lab.policy.policy_examples import GB, NOW, cards, decided, placed, running, says, task
from tests.messages import Messages


def cpu(id: str, cores: int | None = None, *, limit: float | None = None) -> Task:
    return task(id, gpus=0, cores=cores, limit=limit)


def test_as_many_as_there_are_cores(messages: Messages) -> None:
    found = decided(cpu("a", 3), cpu("b", 2), cpu("c"), rules=Rules(cores=6))
    assert list(placed(found)) == ["a", "b", "c"]
    found = decided(cpu("b", 4), live=[running(cpu("a", 5))], rules=Rules(cores=8))
    assert says(found.reasons["b"], "cores", "4", "3", "8", "train-a", "5")
    messages.check(found.reasons["b"])
    found = decided(cpu("a", 9), rules=Rules(cores=8))
    assert says(found.reasons["a"], "impossible", "9", "8")
    messages.check(found.reasons["a"])


def test_small_tasks_do_not_pass_a_large_one_for_ever(messages: Messages) -> None:
    live = [running(cpu(f"x{n}")) for n in range(4)]
    found = decided(cpu("large", 6), cpu("small"), cpu("short", limit=60), live=live, rules=Rules(cores=8))
    assert list(placed(found)) == ["short"], "that one has an end"
    assert says(found.reasons["large"], "cores", "6", "4", "8")
    assert says(found.reasons["small"], "cores", "6", "train-large", "(large)")
    for id in ("large", "small"):
        messages.check(found.reasons[id])


def test_beside_the_large_one_and_before_it_others_start(messages: Messages) -> None:
    live = [running(cpu("x", 4, limit=660))]  # since a minute
    queue = [cpu("a", 5), cpu("b", 2, limit=500), cpu("c", 2), cpu("d", 2)]
    found = decided(*queue, live=live, rules=Rules(cores=8))
    assert list(placed(found)) == ["b", "c"]
    assert says(found.reasons["d"], "cores", "2", "8", "train-x", "4", "train-b", "train-c")
    messages.check(found.reasons["d"])


def test_who_has_several_is_named(messages: Messages) -> None:
    live = [running(cpu("x", 4)), running(cpu("y")), running(cpu("z", 3))]
    reason = decided(cpu("a"), live=live, rules=Rules(cores=8)).reasons["a"]
    assert says(reason, "cores", "8", "train-x", "4", "train-z", "3") and "train-y" not in reason
    messages.check(reason)


def test_where_an_end_is_not_known_the_smallest_is_taken_to_come_first() -> None:
    live = [cpu("x", 6), cpu("y", 1)]
    host = HostCapacity(Rules(cores=8), live, end=lambda task: math.inf, cost=lambda task: 0.0, now=NOW)
    assert host.refusal_reason(cpu("large", 2), HostShare(2, 0), None) is not None
    assert host.refusal_reason(cpu("one"), HostShare(1, 0), None) is not None, (
        "y may end first, and then both are the large one's"
    )


def test_the_shares_of_users_count_cores() -> None:
    held = running(task("x", user="ann", gpus=0, cores=4))
    others = [running(task(f"y{n}", user="bob", gpus=0)) for n in range(2)]
    queue = [task("a", user="ann", gpus=0), task("b", user="bob", gpus=0)]
    found = decided(*queue, live=[held, *others], rules=Rules(cores=7))
    assert list(placed(found)) == ["b"]


def test_tasks_with_cards_take_cores_and_memory_too(messages: Messages) -> None:
    rules = Rules(cores=8, host_memory_mb=32 * GB)
    live = [running(task("x", cores=6, host_mb=20 * GB), 0)]
    queue = [task("a", cores=7), task("b", host_mb=16 * GB), task("c"), task("d", cores=2, host_mb=12 * GB)]
    found = decided(*queue, live=live, cards=cards(4), rules=rules)
    assert says(found.reasons["a"], "cores", "7 cores", "2 of 8", "train-x has 6")
    assert says(found.reasons["b"], "host", "16.0 GB", "12.0 GB of 32.0 GB", "train-x has 20.0 GB")
    assert found.first_blocked == "a", "a card is kept for it, and its cores"
    assert list(placed(found)) == ["c"]
    assert says(found.reasons["d"], "cores", "7 cores", "train-a", "(a)")
    for id in ("a", "b", "d"):
        messages.check(found.reasons[id])


def test_a_task_with_cards_that_names_no_core_waits_for_none() -> None:
    live = [running(cpu(f"x{n}")) for n in range(2)]
    assert placed(decided(task("a"), live=live, cards=cards(1), rules=Rules(cores=2))) == {"a": (0,)}


def test_more_than_the_host_has_is_impossible_and_blocks_nobody(messages: Messages) -> None:
    rules = Rules(cores=8, host_memory_mb=32 * GB)
    queue = [task("a", cores=9), task("b", host_mb=33 * GB), task("c", gpus=0, host_mb=33 * GB), task("d")]
    found = decided(*queue, cards=cards(1), rules=rules)
    assert list(placed(found)) == ["d"]
    for id in ("a", "b", "c"):
        assert says(found.reasons[id], "impossible")
        messages.check(found.reasons[id])
    assert list(placed(decided(task("b", host_mb=33 * GB), cards=cards(1), rules=Rules(cores=8)))) == ["b"]


@pytest.mark.parametrize("gpus", [0, 1])
def test_opportunistic_tasks_give_their_cores_too(gpus: int) -> None:
    """The one that loses least of those that have what is lacking; once it stops, no other."""
    first = running(task("first", cores=4, opportunistic=True), 0, started=NOW - 500)
    second = running(task("second", cores=4, opportunistic=True), 1, started=NOW - 50)
    third = running(task("third", host_mb=GB, opportunistic=True), 2, started=NOW - 5)
    rules = Rules(cores=8, host_memory_mb=32 * GB)
    waiting = task("a", gpus=gpus, cores=4)
    found = decided(waiting, live=[first, second, third], cards=cards(4), rules=rules)
    assert found.preemptions == ("second",) and says(found.reasons["a"], "cores")
    stopping = msgspec.structs.replace(second, state=STOPPING)
    found = decided(waiting, live=[first, stopping, third], cards=cards(4), rules=rules)
    assert found.preemptions == ()
    waiting = task("a", gpus=gpus, cores=4, opportunistic=True)
    assert decided(waiting, live=[first, second, third], cards=cards(4), rules=rules).preemptions == ()


def test_cores_are_kept_for_a_task_that_waits_for_its_cards() -> None:
    """Else it would have its cards and no cores, again and again."""
    live = [running(task("x", limit=660), 0)]
    queue = [task("a", cores=6, submitted=NOW - 900), cpu("b", 4), cpu("c", 4, limit=300), cpu("d", 2)]
    found = decided(*queue, live=live, cards=cards(1), rules=Rules(cores=8))
    assert list(placed(found)) == ["c", "d"]
    assert says(found.reasons["b"], "cores", "train-a") and found.first_blocked_start == NOW + 600
