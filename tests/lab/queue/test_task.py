from __future__ import annotations

from roost.devices.resource_request import ResourceRequest
from roost.lab.queue.task import new_id


def test_cores_text() -> None:
    assert [ResourceRequest(cores=cores).cores_text for cores in (None, 1, 2)] == ["", "1 core", "2 cores"]


def test_ids_are_in_the_order_of_their_times_and_never_alike() -> None:
    times = [0.0, 1.0, 1_795_240_756.123, 1_795_240_756.124, 4_000_000_000.0]
    ids = [new_id(now) for now in times]
    assert ids == sorted(ids)
    assert all(len(id) == 26 and id.isalnum() and id == id.lower() for id in ids)
    assert len({new_id(1.0) for _ in range(1000)}) == 1000
