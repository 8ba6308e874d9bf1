"""Live tasks: when they end, and what they count for."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from roost.lab.policy.card_capacity import FreeCapacity
from roost.lab.policy.policy_state import Expectation, OtherLease, PolicyState
from roost.lab.policy.running_tasks import RunningTasks, expected_end, expected_seconds
from roost.lab.queue.task import STOPPING, Task
from tests.lab.policy.policy_examples import GB, NOW, cards, running, task


def state(*live: Task, **other: Any) -> PolicyState:
    return PolicyState(now=NOW, pending=(), live=live, cards=cards(3), **other)


def living(of: PolicyState) -> RunningTasks:
    return RunningTasks(of, FreeCapacity(of))


def test_how_long_a_task_takes() -> None:
    known = state(expected={"a": Expectation(seconds=100.0), "b": Expectation(seconds=100.0)})
    assert expected_seconds(task("a"), known) == 100.0
    assert expected_seconds(task("b", limit=50), known) == 50.0 and expected_seconds(task("c"), known) is None


def test_when_it_ends() -> None:
    known = state(expected={"late": Expectation(seconds=30.0)})
    ends = {
        NOW + 540: running(task("a", limit=600), 0),
        NOW + 60: running(task("b", limit=30), 0),  # it is over, and is being ended
        math.inf: running(task("late"), 0),  # nobody knows after all
    }
    assert [expected_end(one, known) for one in ends.values()] == list(ends)
    assert expected_end(running(task("s", limit=600), 0, state=STOPPING), known) == NOW + 60
    of = living(state(*ends.values(), expected=known.expected))
    assert [of.end(one) for one in ends.values()] == list(ends)
    assert not of.ends_are_fixed and of.next_end == NOW + 60


def test_ends_that_do_not_move_are_steady_until_one_has_come() -> None:
    first = state(running(task("a", limit=600), 0), running(task("b"), 1))
    of = living(first)
    assert of.ends_are_fixed and of.next_end == NOW + 540
    of.update(replace(first, now=NOW + 540), (), ())
    assert not of.ends_are_fixed and of.next_end == NOW + 600
    assert living(state()).ends_are_fixed and living(state()).next_end is None


def test_what_is_placed_ends_when_it_is_said_to() -> None:
    of = living(state())
    of.add_placed(task("a", limit=5), NOW + 5)
    assert of.end(task("a", limit=5)) == NOW + 5


def test_what_users_have_had_and_are_about_to_have() -> None:
    live = [
        running(task("a", limit=660), 0),
        running(task("b", gb=11.75), 1),
        running(task("c", gpus=2, user="bob"), 1, 2),
    ]
    held = {"GPU-0": [OtherLease("eve", 5 * GB + 896, NOW + 100), OtherLease("eve", None, NOW - 9)]}
    charges = living(state(*live, usage={"ann": 7.0, "dan": 1.0}, other_leases=held)).charges()
    assert charges == {"ann": 7 + 600 + 1800, "bob": 7200, "dan": 1, "eve": 25}


def test_sweeps_and_tasks_of_the_cpu_are_counted() -> None:
    one = running(task("a", sweep="s"), 0)
    two = running(task("b", gpus=0, sweep="s"))
    first = state(one, two)
    of = living(first)
    assert of.sweeps == {"s": 2} and list(of.on_host) == ["b"]
    of.update(replace(first, live=(one,)), [two], [])
    assert of.sweeps == {"s": 1} and not of.on_host
