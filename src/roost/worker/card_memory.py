"""The memory of this process's cards: held to what the lab has promised, and told at the end, so that the lab
knows the next time. The supervisor takes it from the final line
(`roost.supervisor.monitoring.card_peaks`)."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from roost.base.errors import RoostError
from roost.devices import visible_cards
from roost.devices.card import USUAL_DRIVER_MB
from roost.worker.causes import memory_causes as causes

_MB = 2**20


def limit_to_reservation(reserved_mb: float | None, device: str, *, is_rank: bool) -> None:
    """From now on torch refuses this process what goes beyond its promise, instead of a neighbour on the card
    what is his.

    Args:
        reserved_mb: What it was promised of each of its cards; None: the whole, and nothing is refused.
        device: Where it computes.
        is_rank: Whether it is one of several, each with a card; else all that it sees are its own.
    """
    if reserved_mb is None:
        return
    from roost.train.model import simulated_memory

    if simulated_memory.card_id():
        simulated_memory.set_limit(reserved_mb - simulated_memory.DRIVER_MB)
    elif device.startswith("cuda"):
        import torch

        own = torch.device(device).index or 0
        for index in [own] if is_rank else range(torch.cuda.device_count()):
            torch.cuda.mem_get_info(index)  # from here on the driver holds what it needs for us
            total_mb = torch.cuda.get_device_properties(index).total_memory / _MB
            driver_mb = _driver_mb(index)
            if driver_mb is None:
                driver_mb = USUAL_DRIVER_MB
            share = tensor_fraction(reserved_mb, driver_mb=driver_mb, total_mb=total_mb)
            torch.cuda.set_per_process_memory_fraction(share, index)


def tensor_fraction(reserved_mb: float, *, driver_mb: float, total_mb: float) -> float:
    """The part of a card that tensors may take. At least half of what was promised, however much the driver
    takes: with less nothing would run at all.

    Args:
        reserved_mb: What was promised.
        driver_mb: What of it the driver takes.
        total_mb: What torch says that the card has.
    """
    return min(1.0, max(reserved_mb - driver_mb, reserved_mb / 2) / total_mb)


def usage(error: BaseException | None = None) -> dict[str, Any] | None:
    """What this process has taken of a card, of several the one of which it took most, in MB. None: nothing,
    or nobody can tell.

    Args:
        error: What the run ended by.
    """
    if "torch" not in sys.modules:  # it failed before
        return None
    try:
        found = _simulated_card_usage() or _cuda_usage()
    except Exception as failed:  # noqa: BLE001  - after an error of the device torch answers nothing
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


def _cuda_usage() -> dict[str, Any] | None:
    import torch

    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return None
    from roost.train.model import peak_gpu_memory

    peaks = [peak_gpu_memory.process_peak(index) for index in range(torch.cuda.device_count())]
    index = peaks.index(max(peaks))
    if not peaks[index].reserved_mb:
        return None
    driver_mb = _driver_mb(index)
    free, total = torch.cuda.mem_get_info(index)
    own_mb = torch.cuda.memory_reserved(index) / _MB + (driver_mb or USUAL_DRIVER_MB)
    return {
        "peak_mb": round(peaks[index].reserved_mb, 1),
        "allocated_mb": round(peaks[index].allocated_mb, 1),
        "driver_mb": None if driver_mb is None else round(driver_mb, 1),
        "others_mb": round(max(0.0, (total - free) / _MB - own_mb), 1),
        "ooms": int(torch.cuda.memory_stats(index).get("num_ooms", 0)),
    }


def _driver_mb(index: int) -> float | None:
    """What the driver takes of a card for this process, beside the tensors; None where it does not tell."""
    import torch

    try:
        users: Sequence[Any] = visible_cards.cards()[index].users
    except (RoostError, IndexError):
        return None
    own = [user for user in users if user.pid == os.getpid()]
    if not own and len(users) == 1:  # in a container the driver calls us by another pid
        own = list(users)
    if not own or own[0].memory_mb is None:
        return None
    return float(max(0.0, own[0].memory_mb - torch.cuda.memory_reserved(index) / _MB))
