"""Simulated GPU memory of a real process, to test memory profiles and out-of-memory handling of the lab on a
machine without a GPU (ROOST_DEVICES=sim:4x24GB).

A hook, a model or a test declares what it would allocate::

    from roost.train.model import simulated_memory

    simulated_memory.allocate(6_000)  # raises torch.OutOfMemoryError where a real card would

Like torch's allocator it counts for the whole process, within the limit that the worker has set.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

import torch

from roost.base.errors import UsageError
from roost.devices import inventory, visible_cards
from roost.devices.card import Card

DRIVER_MB = 400
"""Memory of the simulated driver, in addition, for each process."""


@dataclass
class SimulatedUsage:
    """The simulated memory of this process on its card, in MB."""

    now_mb: float = 0.0
    peak_mb: float = 0.0
    limit_mb: float = math.inf
    """The most that the process may allocate."""
    ooms: int = 0
    """Number of failed allocations."""


usage = SimulatedUsage()


def allocate(mb: float) -> None:
    """Allocates ``mb`` MB.

    Raises:
        torch.OutOfMemoryError: It is more than the limit allows, or than is free on the card.
        UsageError: This process has no simulated card.
    """
    free_mb = _card().free_mb - DRIVER_MB - usage.now_mb
    if mb > min(usage.limit_mb - usage.now_mb, free_mb):
        usage.ooms += 1
        raise torch.OutOfMemoryError(
            f"CUDA out of memory. Tried to allocate {mb:.2f} MiB. GPU 0 is simulated: {free_mb:.2f} MiB of "
            f"it are free, {usage.now_mb:.2f} MiB are in use by this process, its limit is "
            f"{usage.limit_mb:.2f} MiB"
        )
    usage.now_mb += mb
    usage.peak_mb = max(usage.peak_mb, usage.now_mb)


def release(mb: float) -> None:
    """Frees ``mb`` MB."""
    usage.now_mb = max(0.0, usage.now_mb - mb)


def set_limit(mb: float) -> None:
    """Sets the most that the process may allocate, in MB."""
    usage.limit_mb = mb


def used_by_others_mb() -> float:
    """Returns the memory of foreign processes on this process's card, in MB. Other tasks are not included:
    each is kept to its limit.

    Raises:
        UsageError: This process has no simulated card.
    """
    found = _card()
    return found.total_mb - found.free_mb


def _card() -> Card:
    name = card_id()
    found = next((one for one in inventory.read_cards() if one.id == name), None) if name else None
    if found is None:
        what = "this process has no simulated card"
        raise UsageError(what, fix="submit the task with --gpus 1 to a lab with ROOST_DEVICES=sim:4x24GB")
    return found


def card_id() -> str:
    """Returns the id of this process's simulated card; empty if it has none."""
    if not inventory.is_simulated():
        return ""
    names = os.environ.get(visible_cards.VARIABLE, "").split(",")
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    return names[local_rank] if local_rank < len(names) else names[0]
