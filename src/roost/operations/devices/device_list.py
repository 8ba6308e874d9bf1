"""The result types of `devices`: the cards, what is on them, and the host.

Their readers, such as the client, need not import the operations.
"""

from __future__ import annotations

import msgspec

from roost.lab.policy.policy_state import ReservedWindow

DEFAULT_SINCE = "1h"
"""How far back the history of the cards reaches, if nothing else is requested."""


class TaskOnCard(msgspec.Struct, frozen=True):
    """A task of this lab on a card."""

    id: str
    name: str
    state: str
    mb: int | None
    """The memory that it holds; None: the whole card."""
    short: str = ""
    """The shortest unique prefix of the id."""


class LeaseOnCard(msgspec.Struct, frozen=True):
    """A lease that no task of this lab holds: of another user, or of a session or `roost lease` at a
    terminal."""

    user: str
    pid: int | None
    """The process that took the lease, while it lives (a run, `roost lease`); None for a lease of a task,
    which the daemon took."""
    mb: int | None
    since: float
    package: str
    task: str


class ForeignProcess(msgspec.Struct, frozen=True):
    """A process whose owner holds no lease of the card."""

    pid: int
    user: str | None
    mb: int | None


class CardStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A card and what is on it. Values that the driver does not report are None, or 0 for memory."""

    number: int
    id: str
    name: str
    total_mb: int
    free_mb: int
    utilization: int | None
    temperature: int | None
    power: float | None
    trouble: str
    part_of: str
    exclusive: bool
    """Whether the driver lets only one process at a time compute on it, so that it cannot be shared."""
    allowed: bool
    drained: bool
    windows: list[ReservedWindow]
    """Drain windows that are not over."""
    tasks: list[TaskOnCard]
    leases: list[LeaseOnCard]
    processes: list[ForeignProcess]


class HostStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The host. What the system does not report is None."""

    cores: int
    """The cores that tasks may have together."""
    cores_given: int
    """The cores of the live tasks of this lab."""
    busy_cores: float | None
    """How many processes of the whole machine computed or waited for a core, on average over a minute."""
    memory_mb: int | None
    """The memory that tasks may request together."""
    memory_given_mb: int
    """The memory that the live tasks of this lab have requested."""
    memory_used_mb: int | None
    """The memory that all processes of the machine use, or of the control group if that has a limit."""
    total_memory_mb: int | None


class DeviceList(msgspec.Struct, frozen=True):
    """The cards and the host of the machine, and the rules of the lab."""

    cards: list[CardStatus]
    most_per_card: int | None
    foreign: str
    keep_free_mb: int
    """Memory kept free on each card, at least 2 %."""
    cores: int
    """CPU cores for all tasks; one without cards takes one unless it requests more."""
    host: HostStatus
