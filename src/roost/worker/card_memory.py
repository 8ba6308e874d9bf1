"""The card memory of this process: limited to what the lab has reserved, and reported at the end, so that the
lab knows the need of the next run. The supervisor reads it from the final report
(`roost.supervisor.monitoring.card_peaks`)."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from roost.base.errors import RoostError
from roost.devices import visible_cards
from roost.devices.card import TYPICAL_CONTEXT_MB, Card
from roost.worker.causes import memory_causes as causes

_MB = 2**20


def limit_to_reservation(reserved_mb: float | None, device: str, *, is_rank: bool) -> None:
    """Limits torch's allocator to the reservation, so that a task that needs more fails itself, instead of
    another task on the same card.

    Args:
        reserved_mb: Reserved memory on each of its cards; None: the whole card, no limit.
        device: Device of the run.
        is_rank: Whether this process is one of several ranks with a card each; else all visible cards are
            limited.
    """
    if reserved_mb is None:
        return
    import torch

    from roost.train.accelerators.registry import accelerator_of, leased_accelerator
    from roost.train.model import simulated_memory

    if simulated_memory.card_id():
        simulated_memory.set_limit(reserved_mb - simulated_memory.DRIVER_MB)
    elif (accelerator := accelerator_of(device)) is leased_accelerator():
        own = torch.device(device).index or 0
        for index in [own] if is_rank else range(accelerator.count()):
            accelerator.free_and_total_bytes(index)  # makes the driver allocate the context, which counts
            total_mb = accelerator.total_bytes(index) / _MB
            driver_mb = _driver_mb(index)
            if driver_mb is None:
                driver_mb = TYPICAL_CONTEXT_MB
            share = tensor_fraction(reserved_mb, driver_mb=driver_mb, total_mb=total_mb)
            accelerator.limit_memory(share, index)


def tensor_fraction(reserved_mb: float, *, driver_mb: float, total_mb: float) -> float:
    """Returns the fraction of a card's memory that tensors may use: the reservation less the driver's part,
    but at least half of the reservation, because with less nothing would run at all.

    Args:
        reserved_mb: The reservation.
        driver_mb: Part of it that the driver needs.
        total_mb: Total memory of the card, as torch reports it.
    """
    return min(1.0, max(reserved_mb - driver_mb, reserved_mb / 2) / total_mb)


def usage(error: BaseException | None = None) -> dict[str, Any] | None:
    """Returns the memory, in MB, that this process used of a card; of several cards the most used one. None
    if it used none, or if it cannot be measured.

    Args:
        error: Error by which the run ended; an out-of-memory error adds the size of the failed request.
    """
    if "torch" not in sys.modules:  # the task failed before its import
        return None
    try:
        found = _simulated_card_usage() or _card_usage()
    except Exception as failed:  # noqa: BLE001  - after a device error every call of torch fails
        print(f"the memory of the card could not be read: {type(failed).__name__}", flush=True)
        return None
    text = str(error) if error is not None else ""
    return {**found, "asked_mb": causes.requested_mb(text)} if found is not None else None


def _simulated_card_usage() -> dict[str, Any] | None:
    from roost.train.model import simulated_memory

    acted = simulated_memory.usage
    if not simulated_memory.card_id() or not (acted.peak_mb or acted.ooms):
        return None
    return {
        "peak_mb": acted.peak_mb,
        "allocated_mb": acted.peak_mb,
        "driver_mb": float(simulated_memory.DRIVER_MB),
        "others_mb": simulated_memory.used_by_others_mb(),
        "ooms": acted.ooms,
    }


def _card_usage() -> dict[str, Any] | None:
    import torch

    from roost.train.accelerators.registry import leased_accelerator
    from roost.train.model import peak_gpu_memory

    accelerator = leased_accelerator()
    if not accelerator.is_initialized():
        return None
    devices = [torch.device(accelerator.type, index) for index in range(accelerator.count())]
    peaks = [peak_gpu_memory.process_peak(device) for device in devices]
    index = peaks.index(max(peaks))
    if not peaks[index].reserved_mb:
        return None
    driver_mb = _driver_mb(index)
    free, total = accelerator.free_and_total_bytes(index)
    own_mb = accelerator.reserved_bytes(index) / _MB + (driver_mb or TYPICAL_CONTEXT_MB)
    return {
        "peak_mb": round(peaks[index].reserved_mb, 1),
        "allocated_mb": round(peaks[index].allocated_mb, 1),
        "driver_mb": None if driver_mb is None else round(driver_mb, 1),
        "others_mb": round(max(0.0, (total - free) / _MB - own_mb), 1),
        "ooms": accelerator.out_of_memory_count(index),
    }


def _card_of(index: int, uuid: str | None) -> Card:
    """Returns the card of torch's device ``index``: that with its UUID, since of unlike cards CUDA may take
    the fastest first; else, such as of a MIG instance, that of the same number."""
    found = visible_cards.cards()
    return next((card for card in found if uuid and card.id.removeprefix("GPU-") == uuid), found[index])


def _driver_mb(index: int) -> float | None:
    """Returns the memory that the driver uses on a card for this process, in addition to the tensors; None if
    it is not known."""
    from roost.train.accelerators.registry import leased_accelerator

    try:
        users: Sequence[Any] = _card_of(index, leased_accelerator().uuid(index)).users
    except (RoostError, IndexError):
        return None
    own = [user for user in users if user.pid == os.getpid()]
    if not own and len(users) == 1:  # in a container the driver knows this process by another pid
        own = list(users)
    if not own or own[0].memory_mb is None:
        return None
    return float(max(0.0, own[0].memory_mb - leased_accelerator().reserved_bytes(index) / _MB))
