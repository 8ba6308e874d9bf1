"""The cards that DLNest's options ``-m -mc -DDP -CPU`` ask for: an amount of memory, on one card or divided
among several."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from roost.base.errors import Refused, UsageError
from roost.base.text.byte_sizes import format_memory
from roost.devices.resource_request import TaskOptions


class CardRequest(NamedTuple):
    """The cards that a task asks for."""

    memory_mb: int | None = None
    """Of all its cards together; None: the memory known from earlier runs, or whole cards."""
    multi_card: bool = False
    """Several cards for one process, if no single card has as much memory."""
    ddp: bool = False
    """One process for each card."""
    cpu: bool = False


def task_options(request: CardRequest, capacities_mb: Callable[[], Sequence[int]]) -> TaskOptions:
    """Returns the options of the task.

    Args:
        request: The request.
        capacities_mb: Returns the memory that tasks may reserve on each card that they may use; called only
            where several cards may be needed.

    Raises:
        UsageError: The request contradicts itself.
        Refused: There is no card, or all cards together have less memory.
    """
    if request.cpu:
        if request.ddp or request.multi_card:
            what = f"CPU and {'DDP' if request.ddp else 'several cards'} exclude each other"
            raise UsageError(what, fix="leave out one")
        return TaskOptions(gpus=0)  # no cards, so their memory does not matter
    memory_mb = request.memory_mb
    if not request.ddp and (not request.multi_card or memory_mb is None):
        return TaskOptions(memory_mb=memory_mb)
    capacities = capacities_mb()
    if not capacities:
        raise Refused("there is no card that tasks may use", fix="ask for a single card")
    if memory_mb is None:
        return TaskOptions(gpus=len(capacities), strategy="ddp")
    split = fewest_cards(memory_mb, capacities)
    if split is None:
        what = f"all cards together have less memory than {format_memory(memory_mb)}"
        raise Refused(what, fix="request less; `roost devices` lists the cards")
    num, each_mb = split
    strategy = "ddp" if request.ddp else "single" if num > 1 else None
    return TaskOptions(gpus=num, memory_mb=each_mb, strategy=strategy)  # type: ignore[arg-type]


def fewest_cards(total_mb: int, capacities_mb: Iterable[int]) -> tuple[int, int] | None:
    """Returns how many cards, as few as suffice, and the MB of each; None if all cards together have less.

    Args:
        total_mb: The memory, of all cards together.
        capacities_mb: The memory that each card can give.
    """
    for num, least in enumerate(sorted(capacities_mb, reverse=True), 1):
        if (each_mb := -(-total_mb // num)) <= least:
            return num, each_mb
    return None
