"""The texts of a task or a sweep in a table of tasks: the same in `roost tasks`, in the full-screen client
and on the page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from roost.base.text.byte_sizes import format_memory
from roost.base.text.counts import format_cores
from roost.base.text.durations import format_duration
from roost.lab.queue.task import ENDED
from roost.operations.task_results import Sweep, TaskRow

_CARD_CHARACTERS = 12
"""Characters of the UUID of a card that no longer exists: enough to distinguish the cards of a machine."""


class TaskCells(NamedTuple):
    """The texts of one line."""

    id: str
    label: str
    """The label of a task; of a sweep empty."""
    name: str
    state: str
    """Of a sweep: how many of its tasks are in each state."""
    cards: str
    """The numbers of its cards, or how many a pending task requests."""
    memory: str
    """Of each card."""
    host: str
    """The cores and the memory of the host that it requests."""
    time: str
    progress: str
    priority: str
    """``yields`` marks an opportunistic task, which starts after all others and is stopped for them."""
    reason: str
    part: float | None
    """The part that is done, from 0 to 1, for a bar; None: not known."""


def task_cells(row: TaskRow, now: float, numbers: Mapping[str, int]) -> TaskCells:
    """Returns the texts of a task.

    Args:
        row: The task.
        now: Unix seconds.
        numbers: The numbers of the cards of this machine, by id.
    """
    part = row.step / row.total_steps if row.step is not None and row.total_steps else None
    return TaskCells(
        id=row.short,
        label=row.label,
        name=row.name,
        state=row.state,
        cards=_cards(row, numbers),
        memory=_memory(row),
        host=_host(row),
        time=format_duration(row.seconds(now)),
        progress=_progress(row),
        priority=_priority(row),
        reason=row.reason,
        part=part,
    )


def sweep_cells(sweep: Sweep, now: float) -> TaskCells:
    """Returns the texts of a sweep; its tasks have equal requests."""
    first = sweep.tasks[0]
    ended = sum(task.state in ENDED for task in sweep.tasks)
    return TaskCells(
        id=sweep.short,
        label="",
        name=f"{sweep.name} ({_count(sweep)} tasks)",
        state=", ".join(f"{count} {state}" for state, count in sweep.counts.items()),
        cards=_requested(first),
        memory=_memory(first),
        host=_host(first),
        time=format_duration(sweep.seconds(now)),
        progress=f"{ended}/{len(sweep.tasks)} ended",
        priority=_priority(first),
        reason=sweep.reason,
        part=ended / len(sweep.tasks),
    )


def _count(sweep: Sweep) -> str:
    shown = len(sweep.tasks)
    return f"{shown:,}" if shown == sweep.total else f"{shown:,} of {sweep.total:,}"


def _priority(row: TaskRow) -> str:
    parts = [str(row.priority)] if row.priority else []
    return ", ".join([*parts, *(["yields"] if row.opportunistic else [])])


def _cards(row: TaskRow, numbers: Mapping[str, int]) -> str:
    known = ",".join(str(numbers[card]) for card in row.cards if card in numbers)
    gone = [card[:_CARD_CHARACTERS] for card in row.cards if card not in numbers]
    return ",".join([*([f"GPU {known}"] if known else []), *gone]) or _requested(row)


def _requested(row: TaskRow) -> str:
    count = row.num_cards
    return f"{count} card{'s' * (count > 1)}" if count else ""


def _host(row: TaskRow) -> str:
    cores = [format_cores(row.cores)] if row.cores else []
    return ", ".join([*cores, *([format_memory(row.host_memory_mb)] if row.host_memory_mb else [])])


def _progress(row: TaskRow) -> str:
    if row.step is None:
        return ""
    total = row.total_steps
    done = f"{row.step}/{total} ({row.step / total:.0%})" if total else f"step {row.step}"
    if row.last_step is not None and row.left is not None:
        parts = [done, f"ends about step {row.last_step} in {format_duration(row.left)}"]
    else:
        parts = [done, *([f"{format_duration(row.left)} left"] if row.left is not None else [])]
    if row.durability is not None:  # without the error, or what is to go
        parts.append(row.durability.partition(":")[0].partition(",")[0])
    return ", ".join(parts)


def _memory(row: TaskRow) -> str:
    if not row.num_cards:
        return ""
    return "whole" if row.memory_mb is None else format_memory(row.memory_mb)
