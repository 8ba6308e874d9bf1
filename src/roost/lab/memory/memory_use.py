"""What an attempt has taken of its cards, as its session tells."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from roost.base.system.worker_protocol import OUT_OF_MEMORY
from roost.devices.card import TYPICAL_CONTEXT_MB, Card
from roost.lab.memory.memory_prediction import OutOfMemory
from roost.package.checkpoints import checkpoint
from roost.package.package import PackageFolder
from roost.package.sessions import Session

_MODEL, _TOTAL = "card_model", "card_mb"
_NEIGHBOUR_MB = 256.0
"""What others have of a card at least if it is to be their fault that no more was there."""
_MAX_MB = 1e12
_LONG_RUN_SECONDS = 600.0
"""A run that was stopped tells of others if it ran so long: by then it has probably validated, too."""


class MemoryUse(NamedTuple):
    """The memory that the largest rank of an attempt has taken of its card."""

    peak_mb: float
    """What torch's allocator has held at most."""
    driver_mb: float
    """What the driver took beside."""
    model: str
    """Of the cards."""
    is_whole: bool
    """Whether other runs take as much: it went as far as it was to go, and was never refused any."""
    ran_out: OutOfMemory | None = None
    """How it ran out of memory, if that is what it ended by."""


ReadCapacities = Callable[[int], tuple[int, int]]
"""Asks what tasks may have of a card of so many MB, and of the largest card."""


def card_fields(cards: Sequence[Card]) -> dict[str, Any]:
    """What the request of a session tells of its cards, so that the session tells all; of several models the
    smallest card."""
    if not cards:
        return {}
    card = min(cards, key=lambda one: one.total_mb)
    return {_MODEL: card.name, _TOTAL: card.total_mb}


def session_memory_use(session: Session) -> MemoryUse | None:
    """What a session of the lab has taken, once it has ended; None where it did not tell."""
    record, request = session.record or {}, session.request
    memory, model, card_mb = record.get("memory"), request.get(_MODEL), request.get(_TOTAL)
    if not isinstance(memory, Mapping) or not isinstance(model, str) or not isinstance(card_mb, int):
        return None
    peak_mb, ooms = _number(memory, "peak_mb"), _number(memory, "ooms")
    driver_mb = _number(memory, "driver_mb", TYPICAL_CONTEXT_MB)
    ran_out = None
    if record.get("state") == "failed" and record.get("reason") == OUT_OF_MEMORY:
        reserved_mb = request.get("reserved_mb")
        ran_out = OutOfMemory(
            reserved_mb if isinstance(reserved_mb, int) else None,
            card_mb,
            card_mb,  # as far as the session knows, see `with_card_capacities`
            peak_mb + driver_mb,
            asked_mb=_number(memory, "asked_mb"),
            alone=_number(memory, "others_mb") < _NEIGHBOUR_MB,
        )
    went_far = record.get("state") == "succeeded" or (
        record.get("state") == "stopped" and _number(record, "seconds") >= _LONG_RUN_SECONDS
    )
    is_whole = went_far and peak_mb > 0 and not ooms
    return MemoryUse(peak_mb, driver_mb, model, is_whole, ran_out)


def with_card_capacities(taken: MemoryUse | None, capacities: ReadCapacities) -> MemoryUse | None:
    """With what tasks may have of the cards, where it ran out of memory."""
    if taken is None or taken.ran_out is None:
        return taken
    card_mb, largest_mb = capacities(taken.ran_out.card_mb)
    return taken._replace(ran_out=replace(taken.ran_out, card_mb=card_mb, largest_mb=largest_mb))


def _number(memory: Mapping[str, Any], name: str, unknown: float = 0.0) -> float:
    found = memory.get(name)
    if not isinstance(found, int | float) or not 0 <= found < _MAX_MB:  # whoever has written it
        return unknown
    return float(found)


def count_lost_in_a_row(package: PackageFolder, task: str) -> int:
    """How many of a task's newest sessions have ended by no fault of their own, one after the other, and have
    saved nothing: what watched over them is gone, or a neighbour took the memory that was theirs."""
    unlucky = []
    for session in reversed(package.sessions()):
        if session.request.get("task") != task or not _is_lost(session):
            break
        unlucky.append(session.number)
    saved = {info.session for info in checkpoint.read_manifests(package.checkpoints)} if unlucky else set()
    return next((count for count, number in enumerate(unlucky) if number in saved), len(unlucky))


def _is_lost(session: Session) -> bool:
    if session.record is None or session.record.get("state") == "running":
        return True
    found = session_memory_use(session)
    return found is not None and found.ran_out is not None and not found.ran_out.own_fault
