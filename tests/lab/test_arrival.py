"""What makes new tasks fit to be queued."""

from __future__ import annotations

import msgspec
import pytest

from roost.base.errors import NotFound, Refused
from roost.lab import arrival
from roost.lab.task import CRASHED, FAILED, PENDING, RUNNING, STOPPED, SUCCEEDED, Task
from tests.lab.queued import task


def chain(**after: tuple[str, ...]) -> list[Task]:
    return [task(id=id, after=others) for id, others in after.items()]


def test_those_that_wait_for_each_other_in_any_order_are_sound() -> None:
    arrival.require_sound(chain(c=("a", "b"), b=("a",), a=()), {})
    arrival.require_sound(chain(a=("x", "y", "z")), {"x": PENDING, "y": RUNNING, "z": SUCCEEDED})
    arrival.require_sound([], {})


@pytest.mark.parametrize(
    ("after", "circle"),
    [
        ({"a": ("a",)}, "a → a"),
        ({"a": ("b",), "b": ("a",)}, "a → b → a|b → a → b"),
        ({"a": ("b",), "b": ("c",), "c": ("a",), "d": ("a",)}, "(a → b → c → a|b → c → a → b|c → a → b → c)"),
    ],
)
def test_a_circle_is_refused_and_named(after: dict[str, tuple[str, ...]], circle: str) -> None:
    with pytest.raises(Refused, match=f"--after: tasks would wait for each other for ever: ({circle})"):
        arrival.require_sound(chain(**after), {})


def test_one_that_is_not_there_is_not_waited_for() -> None:
    with pytest.raises(NotFound, match="--after: there is no such task to wait for; received 'x'"):
        arrival.require_sound(chain(a=("b",), b=("x",)), {})


@pytest.mark.parametrize("state", [FAILED, STOPPED, CRASHED])
def test_one_that_did_not_succeed_is_not_waited_for(state: str) -> None:
    with pytest.raises(Refused, match=rf"did not succeed \({state}\).*never begin; received 'x'"):
        arrival.require_sound(chain(a=("x",)), {"x": state})


def test_one_is_queued_once() -> None:
    with pytest.raises(Refused, match="there is already a task of this id; received 'a'"):
        arrival.require_sound(chain(a=()), {"a": PENDING})
    with pytest.raises(Refused, match="there is already a task of this id; received 'a'"):
        arrival.require_sound([task(id="a"), task(id="a")], {})


def test_a_path_that_is_no_utf8_is_refused() -> None:
    with pytest.raises(Refused, match=r"no UTF-8.*udcff"):
        arrival.require_sound([task(package="/tmp/\udcff")], {})


def test_a_new_one_waits() -> None:
    with pytest.raises(ValueError, match="the new task a is running"):
        arrival.require_sound([task(id="a", state=RUNNING)], {})


def test_the_end_of_another_one_may_be_waited_for_however_it_came() -> None:
    first, second = task(), task()
    later = task(after_any=(first.id, second.id))
    arrival.require_sound([later], {first.id: "failed", second.id: "running"})
    with pytest.raises(NotFound, match="--after-any: there is no such task"):
        arrival.require_sound([later], {first.id: "failed"})
    circle = msgspec.structs.replace(first, after_any=(later.id,))
    with pytest.raises(Refused, match="wait for each other for ever"):
        arrival.require_sound([circle, later], {second.id: "running"})
