"""The card memory that waiting tasks will get."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from roost.devices import inventory
from roost.devices.resource_request import ResourceRequest
from roost.lab.memory.memory_features import MemoryFeatures
from roost.lab.queue.history import MemoryPeak
from roost.lab.queue.task import Task
from roost.operations.queue.expected_memory import expected_memory
from roost.operations.queue.list_tasks import list_tasks
from roost.operations.queue.why import why
from tests.lab.labs import Lab
from tests.lab.queued import task
from tests.messages import Messages

PROFILE = MemoryFeatures("project", "code", {"model.width": "64"}).to_text()


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path)
    with lab.here():
        yield lab


def waiting(**need: object) -> Task:
    request = ResourceRequest(cards=1, **need)  # type: ignore[arg-type]
    return task(
        need=request, profile=PROFILE, scale=8.0, reason="memory: needs 5.8 GB on one card; none is free"
    )


def learn(lab: Lab) -> None:
    device = inventory.read_cards()[0].name
    with lab.store() as store:
        store.add_peak(MemoryPeak(PROFILE, 8.0, 5000.0, 400.0, 1, device, 0.0))


def test_the_list_and_why_show_what_the_daemon_will_give(lab: Lab, messages: Messages) -> None:
    """Not `whole` next to a reason that names what it needs."""
    with lab.store() as store:
        store.submit([one := waiting()])
    assert [row.memory_mb for row in list_tasks()] == [None]
    (unknown,) = why(one.id)
    learn(lab)
    assert [row.memory_mb for row in list_tasks()] == [6150]
    (learned,) = why(one.id)
    for found in (unknown, learned):
        messages.check(found.why.partition("; it will get")[2])


@pytest.mark.parametrize(
    ("need", "mb", "why"),
    [
        ({}, 6150, "an earlier run"),
        ({"memory_mb": 9000}, 6150, "an earlier run"),
        ({"least_mb": 8000, "ran_out": 1}, 8000, "ran out of memory"),
        ({"whole": True}, None, "requested"),
        ({"whole": True, "ran_out": 2, "least_mb": 5}, None, "ran out of memory"),
    ],
)
def test_why_it_is_that_much(lab: Lab, need: dict[str, object], mb: int | None, why: str) -> None:
    learn(lab)
    with lab.store() as store:
        (found,) = expected_memory(store, [waiting(**need)]).values()
    assert found.mb == mb and why in found.reason


def test_without_a_driver_it_is_what_was_requested(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    learn(lab)
    monkeypatch.setenv("ROOST_DEVICES", "sim:nonsense")
    with lab.store() as store:
        (found,) = expected_memory(store, [waiting(memory_mb=9000)]).values()
    assert (found.mb, found.reason) == (9000, "as requested")
