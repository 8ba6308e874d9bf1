"""Why a task waits, or how it ended."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from roost.base.errors import NotFound
from roost.lab.task import (
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
    Need,
)
from roost.operations.why import _line, why
from tests.lab.labs import Lab
from tests.lab.queued import task


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path)
    with lab.here():
        yield lab


@pytest.mark.parametrize("state", [PENDING, *LIVE, *ENDED])
def test_it_is_never_empty(state: str) -> None:
    assert _line(task(state=state), {})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"state": PENDING, "reason": "memory: too little"}, "memory: too little"),
        ({"state": PENDING}, "the lab has not looked at it yet"),
        ({"state": RUNNING, "cards": ("A", "B"), "attempt": 2}, "running on GPU 1, B, attempt 2"),
        ({"state": RUNNING, "stop_asked": KILL}, "running without a card: it was asked to end at once"),
        ({"state": RUNNING, "need": Need(cores=2)}, "running on 2 cores, attempt 0"),
        ({"state": STARTING, "cards": ("G1",), "reserved_mb": 7300}, "starting with 7.1 GB on G1, attempt 0"),
        ({"state": FAILED, "reason": "no luck", "exit_code": 1}, "failed: no luck"),
        ({"state": CRASHED, "exit_code": -9}, "crashed: exit code -9"),
        ({"state": STOPPED}, "stopped: somebody asked it to"),
        ({"state": SUCCEEDED, "exit_code": 0, "started": 10.0, "ended": 15.0}, "it ran for 5.0s"),
        (
            {"id": "7a", "state": PENDING, "reason": "dependency: x has failed, so it never starts"},
            "so it never starts (`roost stop 7a` takes it out of the queue)",
        ),
    ],
)
def test_what_is_said(given: dict[str, Any], said: str) -> None:
    assert _line(task(**given), {"A": 1}).endswith(said)


def test_a_command_and_what_it_waits_for_by_short_ids(lab: Lab) -> None:
    first = lab.queue("exit 0")
    second = lab.queue("echo 'a b'", after=(first.id,))
    with lab.store() as store:
        store.explain({second.id: f"dependency: waits until {first.id} has succeeded (pending)"})
        short = store.beginnings([first.id])[first.id]
    (found,) = why(second.id)
    assert found.why.startswith(f"dependency: waits until {short} has succeeded")
    assert found.command == ["/bin/sh", "-c", "echo 'a b'"]
    assert found.name == "/bin/sh -c 'echo '\"'\"'a b'\"'\"''"


def test_what_happened_and_that_nobody_looks_after_it(lab: Lab) -> None:
    one = task(name="one")
    with lab.store() as store:
        store.submit([one])
        store.change(one.id, held=True)
        store.explain({one.id: "held: back"})
    (found,) = why("one")
    assert found.reason == "held: back"
    assert found.why == "held: back; nobody looks after it: `roost lab start`"
    assert [(event.kind, event.text) for event in found.events] == [("pending", ""), ("changed", "held True")]
    with lab.store() as store:
        store.ask(one.id, "stop")
    (found,) = why("one")
    assert found.state == STOPPED and found.why.endswith(": stopped before it began")


def test_each_of_a_sweep(lab: Lab) -> None:
    with lab.store() as store:
        store.submit([task(name="a", sweep="7sweep"), task(name="b", sweep="7sweep")])
    assert [one.name for one in why("7sweep")] == ["a", "b"]


def test_no_such_task(lab: Lab) -> None:
    with pytest.raises(NotFound):
        why("nothing")
