"""The part of the host that a task takes."""

from __future__ import annotations

import pytest

from roost.devices.resource_request import ResourceRequest
from roost.lab.policy.host_share import NO_SHARE, HostShare


@pytest.mark.parametrize(
    ("need", "share"),
    [
        (ResourceRequest(), (1, 0)),
        (ResourceRequest(cores=4, host_memory_mb=500), (4, 500)),
        (ResourceRequest(host_memory_mb=500), (1, 500)),
        (ResourceRequest(cores=0), (0, 0)),
        (ResourceRequest(cores=0, host_memory_mb=500), (0, 500)),
        (ResourceRequest(cards=1), (0, 0)),
        (ResourceRequest(cards=1, cores=4), (4, 0)),
        (ResourceRequest(cards=1, host_memory_mb=500), (0, 500)),
    ],
)
def test_what_a_request_takes(need: ResourceRequest, share: tuple[int, int]) -> None:
    assert HostShare.from_need(need) == share
    assert (HostShare.from_need(need) is NO_SHARE) == (share == (0, 0))


def test_what_is_not_taken_may_be_overdrawn() -> None:
    assert HostShare(2, 0).fits_into(HostShare(2, -100)) and HostShare(0, 5).fits_into(HostShare(-1, 5))
    assert not HostShare(3, 0).fits_into(HostShare(2, 9)) and not HostShare(1, 5).fits_into(HostShare(9, 4))
    assert HostShare(1, 5).plus(HostShare(2, 3)).minus(HostShare(3, 8)) == NO_SHARE
