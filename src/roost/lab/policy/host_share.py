"""The part of the host that a task takes."""

from __future__ import annotations

from typing import NamedTuple

from roost.devices.resource_request import ResourceRequest


class HostShare(NamedTuple):
    """The part of the host that a task takes."""

    cores: int
    mb: int

    @classmethod
    def from_need(cls, need: ResourceRequest) -> HostShare:
        """Returns the share of a resource request. A task that names no number of cores counts as one core,
        or none if it has cards; one that names no memory counts as none."""
        if need.cores is None and need.host_memory_mb is None:
            return NO_SHARE if need.cards else ONE_CORE
        by_default = 0 if need.cards else 1
        found = cls(by_default if need.cores is None else need.cores, need.host_memory_mb or 0)
        return found if any(found) else NO_SHARE

    def fits_into(self, free: HostShare) -> bool:
        """Whether there is as much; a resource that the task does not take may be overdrawn."""
        return (not self.cores or self.cores <= free.cores) and (not self.mb or self.mb <= free.mb)

    def plus(self, other: HostShare) -> HostShare:
        return HostShare(self.cores + other.cores, self.mb + other.mb)

    def minus(self, other: HostShare) -> HostShare:
        return HostShare(self.cores - other.cores, self.mb - other.mb)


NO_SHARE, ONE_CORE = HostShare(0, 0), HostShare(1, 0)
