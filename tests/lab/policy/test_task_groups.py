"""Tasks that wait, by what they ask for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from roost.lab.policy.policy_state import Expectation, PolicyState, ReservedWindow, Rules
from roost.lab.policy.task_groups import TaskGroups
from roost.lab.queue.task import RUNNING, SUCCEEDED, Task
from tests.lab.policy.made import GB, NOW, task


def state(*pending: Task, **other: Any) -> PolicyState:
    return PolicyState(now=NOW, pending=list(pending), **other)


def grouped(kinds: TaskGroups) -> set[str]:
    return {"".join(one.id for one in alike.tasks) for alike in kinds.alike.values()}


def test_those_that_need_the_same_are_alike() -> None:
    tasks = [task("b"), task("a"), task("c", user="bob"), task("d", gb=1), task("e", priority=1)]
    swept = [task("f", sweep="s", most_parallel=1), task("g", sweep="s", most_parallel=1)]
    assert grouped(TaskGroups(state(*tasks, *swept))) == {"abc", "d", "e", "fg"}
    window = ReservedWindow(card="GPU-0", user="bob", begin=NOW, end=NOW + 1)
    assert grouped(TaskGroups(state(*tasks[:3], rules=Rules(reserved=(window,))))) == {"ab", "c"}
    assert grouped(TaskGroups(state(*tasks[:3], expected={"a": Expectation(5)}))) == {"a", "bc"}
    assert grouped(TaskGroups(state(*tasks[:3], closed={"a": frozenset({"GPU-0"})}))) == {"a", "bc"}
    (alike,) = TaskGroups(state(tasks[1], expected={"a": Expectation(5 * GB, 9.0)})).alike.values()
    assert (alike.shape, alike.seconds) == ((1, 5 * GB, False), 9.0)


def test_they_go_and_come_by_age() -> None:
    a, b, c, d = (task(id, submitted=NOW - age) for id, age in (("a", 9), ("b", 8), ("c", 7), ("d", 8.5)))
    kinds = TaskGroups(state(a, b, c))
    assert kinds.follow(state(a, c, d)) and grouped(kinds) == {"adc"}
    assert kinds.follow(state(d)) and grouped(kinds) == {"d"}
    assert kinds.follow(state()) and not kinds.alike
    assert kinds.follow(state(a, task("x", gb=3))) and grouped(kinds) == {"a", "x"}


def test_who_waits_for_something_else_is_let_in_and_put_out_again() -> None:
    a, b = task("a", after=("x",)), task("b")
    first = state(a, b, states={"x": RUNNING})
    kinds = TaskGroups(first)
    assert grouped(kinds) == {"b"} and list(kinds.waiting) == ["a"]
    assert kinds.follow(replace(first, states={"x": SUCCEEDED}))
    assert grouped(kinds) == {"ab"} and not kinds.waiting
    assert kinds.follow(first) and grouped(kinds) == {"b"}
    assert kinds.follow(replace(first, pending=[b, task("c", held=True)]))
    assert grouped(kinds) == {"b"} and list(kinds.waiting) == ["c"]


def test_everybody_is_told_what_his_kind_is_told() -> None:
    a, b, c = task("a"), task("b"), task("c", held=True)
    kinds = TaskGroups(state(a, c))
    (alike,) = kinds.alike.values()
    alike.reason = "cards: none"
    held = kinds.tell()["c"]
    assert held.startswith("held: ") and "roost release c" in held
    assert kinds.tell() == {"a": "cards: none", "c": held}
    assert kinds.follow(state(a, c, b))
    assert kinds.tell() == {"a": "cards: none", "b": "cards: none", "c": held}
    alike.reason = "cards: two"
    kinds.tell().clear()  # which is the caller's
    assert kinds.tell() == {"a": "cards: two", "b": "cards: two", "c": held}
    assert kinds.follow(state(c, b)) and kinds.tell() == {"b": "cards: two", "c": held}


def test_what_is_known_otherwise_is_not_followed() -> None:
    first = state(task("a"))
    window = ReservedWindow(card="GPU-0", user="bob", begin=NOW, end=NOW + 1)
    for change in (
        {"expected": {"a": Expectation(5)}},
        {"closed": {"a": frozenset({"GPU-0"})}},
        {"rules": Rules(reserved=(window,))},
    ):
        assert not TaskGroups(first).follow(replace(first, **change))  # type: ignore[arg-type]
