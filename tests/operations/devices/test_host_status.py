"""What tasks have of the host."""

from __future__ import annotations

from roost.devices.resource_request import ResourceRequest
from roost.lab.policy.policy_state import Rules
from roost.operations.devices.host_status import host_status
from tests.lab.queued import task


def test_the_shares_of_live_tasks_are_added() -> None:
    needs = (
        ResourceRequest(),
        ResourceRequest(cards=1),
        ResourceRequest(cards=1, cores=4, host_memory_mb=500),
        ResourceRequest(host_memory_mb=200),
    )
    found = host_status(Rules(cores=8, host_memory_mb=4000), [task(need=need) for need in needs])
    assert (found.cores, found.cores_given, found.memory_mb, found.memory_given_mb) == (8, 6, 4000, 700)
    assert found.total_memory_mb is not None and found.memory_used_mb is not None
    assert 0 < found.memory_used_mb < found.total_memory_mb


def test_a_host_that_does_not_report_its_memory() -> None:
    found = host_status(Rules(cores=8), [])
    assert (found.memory_mb, found.cores_given, found.memory_given_mb) == (None, 0, 0)
