"""Tasks that wait, by what they ask for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from roost.lab.policy.policy_state import Expectation, PolicyState, ReservedWindow, Rules
from roost.lab.policy.task_groups import TaskGroups
from roost.lab.queue.task import RUNNING, SUCCEEDED, Task
from tests.lab.policy.policy_examples import GB, NOW, task


def state(*pending: Task, **other: Any) -> PolicyState:
    return PolicyState(now=NOW, pending=list(pending), **other)


def grouped(groups: TaskGroups) -> set[str]:
    return {"".join(one.id for one in group.tasks) for group in groups.groups.values()}


def test_those_that_need_the_same_are_alike() -> None:
    tasks = [task("b"), task("a"), task("c", user="bob"), task("d", gb=1), task("e", priority=1)]
    swept = [task("f", sweep="s", most_parallel=1), task("g", sweep="s", most_parallel=1)]
    assert grouped(TaskGroups(state(*tasks, *swept))) == {"abc", "d", "e", "fg"}
    window = ReservedWindow(card="GPU-0", user="bob", begin=NOW, end=NOW + 1)
    assert grouped(TaskGroups(state(*tasks[:3], rules=Rules(reserved=(window,))))) == {"ab", "c"}
    assert grouped(TaskGroups(state(*tasks[:3], expected={"a": Expectation(5)}))) == {"a", "bc"}
    assert grouped(TaskGroups(state(*tasks[:3], closed_cards={"a": frozenset({"GPU-0"})}))) == {"a", "bc"}
    (group,) = TaskGroups(state(tasks[1], expected={"a": Expectation(5 * GB, 9.0)})).groups.values()
    assert (group.shape, group.seconds) == ((1, 5 * GB, False), 9.0)


def test_they_go_and_come_by_age() -> None:
    a, b, c, d = (task(id, submitted=NOW - age) for id, age in (("a", 9), ("b", 8), ("c", 7), ("d", 8.5)))
    groups = TaskGroups(state(a, b, c))
    assert groups.update(state(a, c, d)) and grouped(groups) == {"adc"}
    assert groups.update(state(d)) and grouped(groups) == {"d"}
    assert groups.update(state()) and not groups.groups
    assert groups.update(state(a, task("x", gb=3))) and grouped(groups) == {"a", "x"}


def test_who_waits_for_something_else_is_let_in_and_put_out_again() -> None:
    a, b = task("a", after=("x",)), task("b")
    first = state(a, b, dependency_states={"x": RUNNING})
    groups = TaskGroups(first)
    assert grouped(groups) == {"b"} and list(groups.waiting) == ["a"]
    assert groups.update(replace(first, dependency_states={"x": SUCCEEDED}))
    assert grouped(groups) == {"ab"} and not groups.waiting
    assert groups.update(first) and grouped(groups) == {"b"}
    assert groups.update(replace(first, pending=[b, task("c", held=True)]))
    assert grouped(groups) == {"b"} and list(groups.waiting) == ["c"]


def test_everybody_is_told_what_his_kind_is_told() -> None:
    a, b, c = task("a"), task("b"), task("c", held=True)
    groups = TaskGroups(state(a, c))
    (group,) = groups.groups.values()
    group.reason = "cards: none"
    held = groups.reasons()["c"]
    assert held.startswith("held: ") and "roost release c" in held
    assert groups.reasons() == {"a": "cards: none", "c": held}
    assert groups.update(state(a, c, b))
    assert groups.reasons() == {"a": "cards: none", "b": "cards: none", "c": held}
    group.reason = "cards: two"
    groups.reasons().clear()  # which is the caller's
    assert groups.reasons() == {"a": "cards: two", "b": "cards: two", "c": held}
    assert groups.update(state(c, b)) and groups.reasons() == {"b": "cards: two", "c": held}


def test_what_is_known_otherwise_is_not_followed() -> None:
    first = state(task("a"))
    window = ReservedWindow(card="GPU-0", user="bob", begin=NOW, end=NOW + 1)
    for change in (
        {"expected": {"a": Expectation(5)}},
        {"closed_cards": {"a": frozenset({"GPU-0"})}},
        {"rules": Rules(reserved=(window,))},
    ):
        assert not TaskGroups(first).update(replace(first, **change))  # type: ignore[arg-type]
