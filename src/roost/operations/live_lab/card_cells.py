"""The texts of a card and of the host in a table of devices: the same in `roost devices`, in the full-screen
client and on the page."""

from __future__ import annotations

from typing import NamedTuple

from roost.base.text.byte_sizes import format_memory
from roost.base.text.counts import format_cores
from roost.base.text.timestamps import format_clock, format_time
from roost.operations.devices.device_list import (
    CardStatus,
    DeviceList,
    ForeignProcess,
    HostStatus,
    LeaseOnCard,
    TaskOnCard,
)


class CardCells(NamedTuple):
    """The texts of a card, or of the host."""

    number: str
    model: str
    """Of the host: the cores that tasks may have."""
    used: str
    total: str
    busy: str
    """Of the host: its load."""
    temperature: str
    state: str
    """Of the host: what tasks have of it."""
    users: tuple[str, ...]
    """Each task, lease and process on the card."""


def card_cells(card: CardStatus) -> CardCells:
    """Returns the texts of a card."""
    total = card.total_mb
    return CardCells(
        number=str(card.number),
        model=card.name,
        used=format_memory(total - card.free_mb) if total else "",
        total=format_memory(total) if total else "",
        busy="" if card.utilization is None else f"{card.utilization}%",
        temperature="" if card.temperature is None else f"{card.temperature} C",
        state=card_state(card),
        users=(
            *map(task_text, card.tasks),
            *map(lease_text, card.leases),
            *map(process_text, card.processes),
        ),
    )


def host_cells(host: HostStatus) -> CardCells:
    """Returns the texts of the host."""
    used, total, busy = host.memory_used_mb, host.total_memory_mb, host.busy_cores
    given = format_host(host.cores_given, host.memory_given_mb or None)
    return CardCells(
        number="host",
        model=format_host(host.cores),
        used="" if used is None else format_memory(used),
        total="" if total is None else format_memory(total),
        busy="" if busy is None else f"load {busy:.1f}",
        temperature="",
        state=f"given to tasks: {given}" if host.cores_given or host.memory_given_mb else "",
        users=(),
    )


def rules_text(devices: DeviceList) -> str:
    """Returns the rules of the lab in one line."""
    for_tasks = format_host(devices.host.cores, devices.host.memory_mb)
    if not devices.cards:
        return f"no GPUs; for tasks: {for_tasks}"
    most = "any number" if devices.most_per_card is None else str(devices.most_per_card)
    return (
        f"tasks per card: {most}; cards with processes without a lease: {devices.foreign}; "
        f"kept free on each card: {format_memory(devices.keep_free_mb)}; for tasks: {for_tasks}"
    )


def format_host(cores: int, mb: int | None = None) -> str:
    """Returns a part of the host: ``4 cores, 16.0 GB``."""
    memory = [] if mb is None else [format_memory(mb)]
    return ", ".join([format_cores(cores), *memory])


def card_state(card: CardStatus) -> str:
    """Returns why tasks do not start on a card, or only some; empty: they do."""
    times = [f"drained {format_time(one.begin)[:-3]} to {format_time(one.end)[:-3]}" for one in card.windows]
    alone = "one process at a time" * card.exclusive
    reasons = (
        card.trouble,
        "drained" * card.drained,
        *times,
        "not used by the lab" * (not card.allowed),
        alone,
    )
    return ", ".join(filter(None, reasons))


def task_text(task: TaskOnCard) -> str:
    """Returns the line of a task on a card."""
    return f"task {task.short or task.id} {task.name}: {_format_share(task.mb)}, {task.state}"


def lease_text(lease: LeaseOnCard) -> str:
    """Returns the line of a lease that no task of this lab holds."""
    what = f", {lease.package}" if lease.package else ""
    pid = f", pid {lease.pid}" if lease.pid is not None else ""
    who = f"a task of {lease.user}" if lease.task else f"{lease.user}{pid}"
    return f"{who}: {_format_share(lease.mb)} since {format_clock(lease.since)}{what}"


def process_text(process: ForeignProcess) -> str:
    """Returns the line of a process without a lease."""
    used = "" if process.mb is None else f": {format_memory(process.mb)}"
    return f"{process.user or 'unknown user'}, pid {process.pid}, without a lease{used}"


def _format_share(mb: int | None) -> str:
    return "the whole card" if mb is None else format_memory(mb)
