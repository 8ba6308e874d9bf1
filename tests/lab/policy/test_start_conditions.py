"""What tasks wait for beside room."""

from __future__ import annotations

import pytest

from roost.base.text.timestamps import format_clock
from roost.lab.policy.policy_state import PolicyState
from roost.lab.policy.start_conditions import StartConditions, can_never_start, is_conditional
from roost.lab.queue.task import FAILED, PENDING, RUNNING, SUCCEEDED
from tests.lab.policy.policy_examples import NOW, says, task
from tests.messages import Messages


def state(now: float = NOW, **states: str) -> PolicyState:
    return PolicyState(now=now, pending=(), dependency_states=states)


def test_who_may_have_to_wait() -> None:
    assert not is_conditional(task("a"))
    for one in (
        task("a", held=True),
        task("a", begin=1.0),
        task("a", after=("x",)),
        task("a", after_any=("x",)),
    ):
        assert is_conditional(one)


def test_it_is_told_anew_when_the_others_have_changed(messages: Messages) -> None:
    one, conditions = [task("a", after=("x",))], StartConditions()
    for x in (RUNNING, FAILED):
        (reason,) = conditions.reasons(one, state(x=x)).values()
        assert says(reason, "dependency", "x", x)
        messages.check(reason)
    assert conditions.reasons(one, state(x=SUCCEEDED)) == {}


def test_it_is_told_anew_when_what_they_wait_for_has_changed(messages: Messages) -> None:
    chain, conditions = [task("a", after=("x",)), task("b", after=("a",))], StartConditions()
    running = conditions.reasons(chain, state(x=RUNNING, a="pending"))
    assert says(running["b"], "dependency", "a", "pending")
    failed = conditions.reasons(chain, state(x=FAILED, a="pending"))
    assert says(failed["b"], "dependency", "x", "failed", "a")
    for found in (running, failed):
        messages.check(found["b"])


def test_a_time_and_a_hold_are_looked_at_each_time() -> None:
    conditions = StartConditions()
    assert conditions.reasons([task("a", begin=NOW + 5)], state())["a"].startswith("begin: ")
    assert conditions.reasons([task("a", begin=NOW + 5)], state(NOW + 5)) == {}
    assert conditions.reasons([task("a", held=True)], state())["a"].startswith("held: ")
    assert conditions.reasons([task("a", after=("x",), held=True)], state(x=SUCCEEDED)) != {}
    assert conditions.reasons([task("a", after=("x",))], state(x=SUCCEEDED)) == {}


def test_a_time_and_what_else_is_waited_for_are_both_told(messages: Messages) -> None:
    one, conditions = [task("a", begin=NOW + 5, after=("x",))], StartConditions()
    both = conditions.reasons(one, state(x=RUNNING))["a"]
    alone = conditions.reasons(one, state(x=SUCCEEDED))["a"]
    assert says(both, "begin", format_clock(NOW + 5), "x", "running") and says(
        alone, "begin", format_clock(NOW + 5)
    )
    for reason in (both, alone):
        messages.check(reason.replace(format_clock(NOW + 5), "<time>"))
    assert says(conditions.reasons(one, state(x=FAILED))["a"], "dependency", "x", "failed")


def test_another_dependency_of_the_same_task_is_another_one(messages: Messages) -> None:
    conditions = StartConditions()
    assert conditions.reasons([task("a", after=("x",))], state(x=RUNNING, y=RUNNING))
    after_any = conditions.reasons([task("a", after_any=("x",))], state(x=RUNNING, y=RUNNING))
    assert says(after_any["a"], "dependency", "x", "running")
    messages.check(after_any["a"])


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ({"a": FAILED}, True),
        ({}, True),
        ({"a": RUNNING}, False),
        ({"a": SUCCEEDED, "b": FAILED}, True),
        ({"a": RUNNING, "b": FAILED}, False),
        ({"a": PENDING, "x": PENDING, "y": FAILED}, True),
        ({"a": PENDING, "x": PENDING, "y": RUNNING}, False),
        ({"a": PENDING, "x": PENDING, "y": PENDING}, False),
    ],
    ids=["failed", "unknown", "running", "second", "not the first", "chain", "running chain", "circle"],
)
def test_a_dependency_that_cannot_succeed_is_recognised_by_states(
    states: dict[str, str], expected: bool
) -> None:
    after = {"a": ("x",), "x": ("y",), "y": ("a",)}
    others = {id: task(id, state=state, after=after.get(id, ())) for id, state in states.items()}
    for text in ("dependency: a has failed, so it never starts", "dependency: in other words"):
        assert can_never_start(task("t", after=("a", "b"), reason=text), others.get) is expected
    for text in ("held: until it is released", "begin: not before 12:00, and a has failed", ""):
        assert not can_never_start(task("t", after=("a", "b"), reason=text), others.get)
