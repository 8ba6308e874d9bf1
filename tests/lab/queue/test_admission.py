"""Dependencies of new tasks."""

from __future__ import annotations

import re

import msgspec
import pytest

from roost.base.errors import NotFound, Refused
from roost.lab.queue import admission
from roost.lab.queue.task import CRASHED, FAILED, PENDING, RUNNING, STOPPED, SUCCEEDED, Task
from tests.lab.queued import task
from tests.messages import Messages


def chain(**after: tuple[str, ...]) -> list[Task]:
    return [task(id=id, after=others) for id, others in after.items()]


def test_dependencies_among_new_tasks_may_be_in_any_order() -> None:
    admission.require_can_start(chain(c=("a", "b"), b=("a",), a=()), {})
    admission.require_can_start(chain(a=("x", "y", "z")), {"x": PENDING, "y": RUNNING, "z": SUCCEEDED})
    admission.require_can_start([], {})


@pytest.mark.parametrize(
    ("after", "circle"),
    [
        ({"a": ("a",)}, "a → a"),
        ({"a": ("b",), "b": ("a",)}, "a → b → a|b → a → b"),
        ({"a": ("b",), "b": ("c",), "c": ("a",), "d": ("a",)}, "(a → b → c → a|b → c → a → b|c → a → b → c)"),
    ],
)
def test_a_dependency_cycle_is_refused(
    after: dict[str, tuple[str, ...]], circle: str, messages: Messages
) -> None:
    with pytest.raises(Refused, match=f"({circle})") as refused:
        admission.require_can_start(chain(**after), {})
    assert refused.value.setting == "--after"
    messages.check(re.sub(circle, "<circle>", str(refused.value)))


def test_an_unknown_dependency_is_refused(messages: Messages) -> None:
    with pytest.raises(NotFound, match="'x'") as refused:
        admission.require_can_start(chain(a=("b",), b=("x",)), {})
    assert refused.value.setting == "--after"
    messages.check(refused.value)


@pytest.mark.parametrize("state", [FAILED, STOPPED, CRASHED])
def test_a_dependency_that_failed_is_refused(state: str, messages: Messages) -> None:
    with pytest.raises(Refused) as refused:
        admission.require_can_start(chain(a=("x",)), {"x": state})
    assert all(fact in str(refused.value) for fact in (state, "'x'"))
    messages.check(refused.value)


def test_an_id_is_queued_once(messages: Messages) -> None:
    with pytest.raises(Refused, match="'a'") as refused:
        admission.require_can_start(chain(a=()), {"a": PENDING})
    messages.check(refused.value)
    with pytest.raises(Refused, match="'a'"):
        admission.require_can_start([task(id="a"), task(id="a")], {})


def test_a_path_that_is_no_utf8_is_refused(messages: Messages) -> None:
    with pytest.raises(Refused, match="udcff") as refused:
        admission.require_can_start([task(package="/runs/\udcff")], {})
    messages.check(refused.value)


def test_a_new_task_must_be_pending() -> None:
    with pytest.raises(ValueError, match=r"\ba\b.* running"):
        admission.require_can_start([task(id="a", state=RUNNING)], {})


def test_after_any_accepts_a_dependency_that_failed() -> None:
    first, second = task(), task()
    later = task(after_any=(first.id, second.id))
    admission.require_can_start([later], {first.id: "failed", second.id: "running"})
    with pytest.raises(NotFound) as refused:
        admission.require_can_start([later], {first.id: "failed"})
    assert refused.value.setting == "--after-any"
    circle = msgspec.structs.replace(first, after_any=(later.id,))
    with pytest.raises(Refused, match=f"{first.id}.*{later.id}|{later.id}.*{first.id}"):
        admission.require_can_start([circle, later], {second.id: "running"})
