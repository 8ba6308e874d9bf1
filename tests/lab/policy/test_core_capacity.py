"""Cores of the CPU, as they are given out."""

from __future__ import annotations

import math

from roost.lab.policy.core_capacity import CoreCapacity
from roost.lab.policy.policy_state import Rules
from roost.lab.queue.task import Task
from tests.lab.policy.policy_examples import NOW, decided, placed, running, says, task
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
    cores = CoreCapacity(8, live, end=lambda task: math.inf, now=NOW)
    assert cores.allocate(cpu("large", 2), None) is not None
    assert cores.allocate(cpu("one"), None) is not None, "y may end first, and then both are the large one's"


def test_the_shares_of_users_count_cores() -> None:
    held = running(task("x", user="ann", gpus=0, cores=4))
    others = [running(task(f"y{n}", user="bob", gpus=0)) for n in range(2)]
    queue = [task("a", user="ann", gpus=0), task("b", user="bob", gpus=0)]
    found = decided(*queue, live=[held, *others], rules=Rules(cores=7))
    assert list(placed(found)) == ["b"]
