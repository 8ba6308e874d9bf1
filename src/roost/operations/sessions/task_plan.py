"""The layout of ranks of a session that the lab will start later, without the caller."""

from __future__ import annotations

from typing import Any

from roost.base.errors import UsageError
from roost.config import conflicts
from roost.config.settings import Devices, Settings, Where
from roost.operations.queue.resources import TaskOptions


def rank_request(
    options: TaskOptions, settings: Settings, *, devices: Devices, where: Where
) -> dict[str, Any]:
    """Returns the part of a session's request about devices and ranks; the lab chooses the cards.

    Args:
        options: The options of the task, with a known number of cards.
        settings: The effective settings.
        devices: The number of processes on the CPU.
        where: Returns where a dotted key was set, for messages.

    Raises:
        UsageError: Options contradict each other.
        ConfigError: A setting does not work with several ranks.
    """
    cards = options.need.cards
    on_cpu = 1 if devices == "auto" or isinstance(devices, list) else int(devices)
    count = cards or on_cpu
    chosen = options.strategy or settings.strategy or ("ddp" if count > 1 else "single")
    if chosen == "single" and not cards and count > 1:
        raise UsageError("strategy single has one process", fix="leave it out, or request one device")
    world = 1 if chosen == "single" else count
    if world > 1:
        conflicts.check_ranks(settings, chosen, world, where)
    return {
        "device": "cuda" if cards and not options.simulated else "cpu",
        "devices": count,
        "cards": None,
        "strategy": chosen,
        "ranks": world,
        "num_nodes": 1,
        "rendezvous": None,
        "restart": 0,
    }
