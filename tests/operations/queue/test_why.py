"""Why a task waits, or how it ended."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from roost.base.errors import NotFound
from roost.devices.resource_request import ResourceRequest
from roost.lab.queue.task import (
    CRASHED,
    ENDED,
    FAILED,
    KILL,
    LIVE,
    PENDING,
    RUNNING,
    STARTING,
    STOPPED,
    SUCCEEDED,
)
from roost.operations.queue.why import _state_line, why
from roost.package.package import PackageFolder
from tests.lab.labs import Lab
from tests.lab.queued import task
from tests.messages import Messages
from tests.operations.packages import package, session


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path)
    with lab.here():
        yield lab


@pytest.mark.parametrize("state", [PENDING, *LIVE, *ENDED])
def test_it_is_never_empty(state: str) -> None:
    assert _state_line(task(state=state), {})


@pytest.mark.parametrize(
    ("given", "facts"),
    [
        ({"state": PENDING, "reason": "memory: too little"}, ["memory: too little"]),
        ({"state": PENDING}, []),
        ({"state": RUNNING, "cards": ("A", "B"), "attempt": 2}, ["running", "GPU 1, B", "attempt 2"]),
        ({"state": RUNNING, "stop_asked": KILL}, ["running"]),
        ({"state": RUNNING, "need": ResourceRequest(cores=2)}, ["running", "2 cores", "attempt 0"]),
        (
            {"state": STARTING, "cards": ("G1",), "reserved_mb": 7300},
            ["starting", "7.1 GB", "G1", "attempt 0"],
        ),
        ({"state": FAILED, "reason": "no luck", "exit_code": 1}, ["failed", "no luck"]),
        ({"state": CRASHED, "exit_code": -9}, ["crashed", "-9"]),
        ({"state": STOPPED}, ["stopped"]),
        ({"state": SUCCEEDED, "exit_code": 0, "started": 10.0, "ended": 15.0}, ["succeeded", "5.0s"]),
        (
            {"id": "7a", "state": PENDING, "reason": "dependency: x has failed, so it never starts"},
            ["dependency: x has failed, so it never starts", "`roost stop 7a`"],
        ),
    ],
)
def test_what_is_said(given: dict[str, Any], facts: list[str], messages: Messages) -> None:
    line = _state_line(task(**given), {"A": 1}, never_starts="7a" in given.values())
    assert all(fact in line for fact in facts)
    messages.check(line)


def test_a_command_and_what_it_waits_for_by_short_ids(lab: Lab) -> None:
    first = lab.queue("exit 0")
    second = lab.queue("echo 'a b'", after=(first.id,))
    with lab.store() as store:
        store.set_wait_reasons({second.id: f"dependency: waits until {first.id} has succeeded (pending)"})
        short = store.unique_prefixes([first.id])[first.id]
    (found,) = why(second.id)
    assert found.why.startswith(f"dependency: waits until {short} has succeeded")
    assert found.command == ["/bin/sh", "-c", "echo 'a b'"]
    assert found.name == "/bin/sh -c 'echo '\"'\"'a b'\"'\"''"


def test_events_and_a_missing_daemon_are_reported(lab: Lab, messages: Messages) -> None:
    one = task(name="one")
    with lab.store() as store:
        store.submit([one])
        store.change(one.id, held=True)
        store.set_wait_reasons({one.id: "held: back"})
    (found,) = why("one")
    assert found.reason == "held: back"
    assert found.why.startswith("held: back; ") and "`roost lab start`" in found.why
    messages.check(found.why)
    assert [event.kind for event in found.events] == ["pending", "changed"]
    messages.check(found.events[1].text)
    with lab.store() as store:
        store.request_stop(one.id, "stop")
    (found,) = why("one")
    assert found.state == STOPPED and found.why.endswith(f": {found.reason}; its package was removed")
    messages.check(found.reason)


def test_a_task_that_is_named_is_called_by_its_name(lab: Lab) -> None:
    first = task(name="k1", package="/nowhere/k1")
    second = task(after=(first.id,), reason=f"dependency: waits until {first.id} has succeeded (pending)")
    with lab.store() as store:
        store.submit([first, second])
    assert why(second.id)[0].why.startswith("dependency: waits until k1 has succeeded (pending)")


def test_that_it_makes_room_for_others(lab: Lab) -> None:
    with lab.store() as store:
        store.submit(
            [task(name="opp", need=ResourceRequest(cards=1, opportunistic=True)), task(name="other")]
        )
    assert "opportunistic" in why("opp")[0].why
    assert "opportunistic" not in why("other")[0].why


def ended(lab: Lab, path: Path, state: str, **record: Any) -> str:
    """A task whose package has one session; gives its id."""
    made = package(path.parent, path.name, state=state, **record)
    one = task(package=str(made.path))
    with lab.store() as store:
        store.submit([one])
        begun = store.transition(store.start(store.task(one.id), [], None), RUNNING, session=1)
        store.transition(begun, state, reason="killed by SIGKILL")
    return one.id


def test_how_to_go_on_with_a_training_that_did_not_succeed(lab: Lab, tmp_path: Path) -> None:
    crashed = ended(lab, tmp_path / "runs" / "k1", CRASHED)
    assert why(crashed)[0].can_go_on
    session(PackageFolder.open(tmp_path / "runs" / "k1"), "succeeded")
    assert not why(crashed)[0].can_go_on, "a later session has continued it"
    assert not why(ended(lab, tmp_path / "runs" / "k2", SUCCEEDED))[0].can_go_on
    command = lab.queue("exit 1")
    with lab.store() as store:
        begun = store.transition(store.start(store.task(command.id), [], None), RUNNING, session=1)
        store.transition(begun, FAILED)
    assert why(command.id)[0].can_go_on


def test_that_its_guard_was_killed(lab: Lab, tmp_path: Path) -> None:
    lost = ended(lab, tmp_path / "runs" / "k1", FAILED, guard_lost=1_700_000_000.0)
    assert "guard" in why(lost)[0].why
    assert "guard" not in why(ended(lab, tmp_path / "runs" / "k2", FAILED))[0].why


def test_each_of_a_sweep(lab: Lab) -> None:
    with lab.store() as store:
        store.submit([task(name="a", sweep="7sweep"), task(name="b", sweep="7sweep")])
    assert [one.name for one in why("7sweep")] == ["a", "b"]


def test_no_such_task(lab: Lab) -> None:
    with pytest.raises(NotFound):
        why("nothing")


@pytest.mark.parametrize("is_stopped", [True, False])
def test_a_task_that_can_never_start_can_be_removed(lab: Lab, is_stopped: bool) -> None:
    """Whether it can start is read from the states, through other pending tasks, whatever the reason says."""
    first = task()
    middle = task(after=(first.id,))
    last = task(after=(middle.id,), reason="dependency: written by another version")
    with lab.store() as store:
        store.submit([first, middle, last])
        if is_stopped:
            store.request_stop(first.id, "stop")
    (found,) = why(last.id)
    assert ("`roost stop" in found.why) == is_stopped


def test_the_priority_and_how_many_tasks_are_ahead(lab: Lab) -> None:
    with lab.store() as store:
        tasks = [task(priority=priority, reason="cards: none") for priority in (0, 5, 0, 0)]
        store.submit([*tasks, task(held=True, priority=9)])
    found = [why(one.id)[0] for one in tasks]
    assert [(one.priority, one.ahead) for one in found] == [(0, 1), (5, 0), (0, 2), (0, 3)]
    assert "priority 5, no task is ahead of it" in found[1].why
    assert "priority 0, 1 task is ahead of it" in found[0].why and "3 tasks are ahead" in found[3].why
