"""What tasks wait for beside room."""

from __future__ import annotations

from roost.base.moment import clock
from roost.lab.policy.conditions import Conditions, is_conditional
from roost.lab.policy.state import State
from roost.lab.task import FAILED, RUNNING, SUCCEEDED
from tests.lab.policy.made import NOW, task


def state(now: float = NOW, **states: str) -> State:
    return State(now=now, pending=(), states=states)


def test_who_may_have_to_wait() -> None:
    assert not is_conditional(task("a"))
    for one in (
        task("a", held=True),
        task("a", begin=1.0),
        task("a", after=("x",)),
        task("a", after_any=("x",)),
    ):
        assert is_conditional(one)


def test_it_is_told_anew_when_the_others_have_changed() -> None:
    one, conditions = [task("a", after=("x",))], Conditions()
    assert conditions.reasons(one, state(x=RUNNING)) == {
        "a": "dependency: waits until x has succeeded (running)"
    }
    assert conditions.reasons(one, state(x=FAILED)) == {"a": "dependency: x has failed, so it never starts"}
    assert conditions.reasons(one, state(x=SUCCEEDED)) == {}


def test_it_is_told_anew_when_what_they_wait_for_has_changed() -> None:
    chain, conditions = [task("a", after=("x",)), task("b", after=("a",))], Conditions()
    running = conditions.reasons(chain, state(x=RUNNING, a="pending"))
    assert running["b"] == "dependency: waits until a has succeeded (pending)"
    failed = conditions.reasons(chain, state(x=FAILED, a="pending"))
    assert failed["b"] == "dependency: x has failed, so a never starts, nor does this one"


def test_a_time_and_a_hold_are_looked_at_each_time() -> None:
    conditions = Conditions()
    assert conditions.reasons([task("a", begin=NOW + 5)], state())["a"].startswith("begin: ")
    assert conditions.reasons([task("a", begin=NOW + 5)], state(NOW + 5)) == {}
    assert conditions.reasons([task("a", held=True)], state())["a"].startswith("held: ")
    assert conditions.reasons([task("a", after=("x",), held=True)], state(x=SUCCEEDED)) != {}
    assert conditions.reasons([task("a", after=("x",))], state(x=SUCCEEDED)) == {}


def test_a_time_and_what_else_is_waited_for_are_both_told() -> None:
    one, conditions = [task("a", begin=NOW + 5, after=("x",))], Conditions()
    both = conditions.reasons(one, state(x=RUNNING))["a"]
    assert both == f"begin: not before {clock(NOW + 5)}, and waits until x has succeeded (running)"
    assert conditions.reasons(one, state(x=SUCCEEDED))["a"] == f"begin: not before {clock(NOW + 5)}"
    assert conditions.reasons(one, state(x=FAILED))["a"] == "dependency: x has failed, so it never starts"


def test_another_dependency_of_the_same_task_is_another_one() -> None:
    conditions = Conditions()
    assert conditions.reasons([task("a", after=("x",))], state(x=RUNNING, y=RUNNING))
    after_any = conditions.reasons([task("a", after_any=("x",))], state(x=RUNNING, y=RUNNING))
    assert after_any == {"a": "dependency: waits until x has ended (running)"}
