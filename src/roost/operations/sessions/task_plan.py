"""What the lab will start, later and without the caller: a `Plan` from a session's request."""

from __future__ import annotations

from typing import Any

from roost.base.errors import UsageError
from roost.config import conflicts
from roost.config.settings import Devices, Settings, Where
from roost.operations.queue.resources import TaskOptions


def rank_request(
    options: TaskOptions, settings: Settings, *, devices: Devices, where: Where
) -> dict[str, Any]:
    """The part of a session's request that tells what it computes with: the lab chooses the cards.

    Args:
        options: What it asks of the lab, the number of cards known.
        settings: Those in effect.
        devices: How many processes it has on the CPU.
        where: Where a dotted key was set, for messages.

    Raises:
        UsageError: What is asked contradicts itself.
        ConfigError: A setting does not go with several ranks.
    """
    cards = options.need.cards
    on_cpu = 1 if devices == "auto" or isinstance(devices, list) else int(devices)
    count = cards or on_cpu
    chosen = options.strategy or settings.strategy or ("ddp" if count > 1 else "single")
    if chosen == "single" and not cards and count > 1:
        raise UsageError("strategy single is one process", fix="leave it out, or ask for one device")
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
