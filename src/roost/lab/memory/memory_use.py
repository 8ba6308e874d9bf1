"""The memory use of an attempt on its cards, read from the record of its session."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from roost.analysis import analysis_folder
from roost.analysis.analyzers import analyzer_folder
from roost.base.system.worker_protocol import OUT_OF_MEMORY
from roost.devices.card import TYPICAL_CONTEXT_MB, Card
from roost.lab.memory.memory_prediction import OutOfMemory
from roost.package.checkpoints import checkpoint
from roost.package.package import PackageFolder
from roost.package.session_folder import SessionFolder
from roost.package.sessions import Session
from roost.supervisor.exit_status import SUPERVISOR_KILLED

_NEIGHBOUR_MB = 256.0
"""With at least so much used by other processes, they are the cause of an out-of-memory failure."""
_MAX_MB = 1e12
_LONG_RUN_SECONDS = 600.0
"""The use of a stopped run is representative if it ran so long: by then it has probably validated, too."""


class MemoryUse(NamedTuple):
    """The card memory of the rank of an attempt that used most."""

    peak_mb: float
    """The peak of torch's allocator."""
    driver_mb: float
    """The memory of the driver in addition."""
    model: str
    """The model of the cards."""
    is_representative: bool
    """Whether other runs will use as much: it ran to its end, and no allocation failed."""
    ran_out: OutOfMemory | None = None
    """The facts of an out-of-memory failure, if it ended by one."""


ReadCapacities = Callable[[int], tuple[int, int]]
"""Returns the memory that tasks may have of a card of so many MB, and of the largest card."""


def card_fields(cards: Sequence[Card]) -> dict[str, Any]:
    """Returns the fields about the cards in the request of a session, so that its memory use can be read from
    the session alone; of several models the smallest card."""
    if not cards:
        return {}
    card = min(cards, key=lambda one: one.total_mb)
    return {"card_model": card.name, "card_mb": card.total_mb}


def session_memory_use(session: Session) -> MemoryUse | None:
    """Returns the memory use of an ended session of the lab; None if it was not recorded."""
    record, request = session.recorded, session.request
    memory, model, card_mb = record.memory, request.card_model, request.card_mb
    if not isinstance(memory, Mapping) or not isinstance(model, str) or not isinstance(card_mb, int):
        return None
    peak_mb, ooms = _number(memory, "peak_mb"), _number(memory, "ooms")
    driver_mb = _number(memory, "driver_mb", TYPICAL_CONTEXT_MB)
    ran_out = None
    if record.state == "failed" and record.reason == OUT_OF_MEMORY:
        reserved_mb = request.reserved_mb
        ran_out = OutOfMemory(
            reserved_mb if isinstance(reserved_mb, int) else None,
            card_mb,
            card_mb,  # the session does not know more, see `with_card_capacities`
            peak_mb + driver_mb,
            asked_mb=_number(memory, "asked_mb"),
            alone=_number(memory, "others_mb") < _NEIGHBOUR_MB,
        )
    went_far = record.state == "succeeded" or (
        record.state == "stopped" and _number(record, "seconds") >= _LONG_RUN_SECONDS
    )
    is_representative = went_far and peak_mb > 0 and not ooms
    return MemoryUse(peak_mb, driver_mb, model, is_representative, ran_out)


def with_card_capacities(taken: MemoryUse | None, capacities: ReadCapacities) -> MemoryUse | None:
    """Completes an out-of-memory failure with the memory that tasks may have of the cards."""
    if taken is None or taken.ran_out is None:
        return taken
    card_mb, largest_mb = capacities(taken.ran_out.card_mb)
    return taken._replace(ran_out=replace(taken.ran_out, card_mb=card_mb, largest_mb=largest_mb))


def _number(memory: Mapping[str, Any], name: str, unknown: float = 0.0) -> float:
    found = memory.get(name)
    if not isinstance(found, int | float) or not 0 <= found < _MAX_MB:  # another program may have written it
        return unknown
    return float(found)


def count_lost_in_a_row(folder: SessionFolder, task: str) -> int:
    """Returns how many of a task's newest sessions in a row ended by no fault of their own and achieved
    nothing: they saved no checkpoint, or of an analyzer no script succeeded. Their supervisor was killed, or
    another process took memory that was promised to them."""
    lost: list[Session] = []
    for session in reversed(folder.sessions()):
        if session.request.task != task or not _is_lost(session):
            break
        lost.append(session)
    useful = set[int]()
    if lost and folder.is_package:
        useful = {info.session for info in checkpoint.read_manifests(PackageFolder(folder.path).checkpoints)}
    elif lost and folder.path.parent.name == analyzer_folder.NAME:
        useful = _sessions_with_results(folder, lost)
    return next((count for count, session in enumerate(lost) if session.number in useful), len(lost))


def _sessions_with_results(folder: SessionFolder, newest: Sequence[Session]) -> set[int]:
    """Returns the numbers of those sessions of an analyzer in which a script has succeeded.

    Args:
        folder: The folder of the analyzer.
        newest: Its newest sessions, the newest first.
    """
    begins = [(one.number, one.recorded.started) for one in newest]
    ends = analysis_folder.success_times(
        folder.package_path / analysis_folder.NAME,
        int(folder.path.name),
        since=min((began for _, began in begins if began is not None), default=math.inf),
    )
    return {
        next((number for number, began in begins if began is not None and began <= end), 0) for end in ends
    }


def _is_lost(session: Session) -> bool:
    if session.record is None or session.record.state == "running":
        return True
    if session.record.reason == SUPERVISOR_KILLED:
        return True
    found = session_memory_use(session)
    return found is not None and found.ran_out is not None and not found.ran_out.own_fault
