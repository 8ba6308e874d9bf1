"""The leases of what is begun at a terminal: whole cards, for nobody has said how much of them it needs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from roost.base.errors import Refused
from roost.base.handover import LEASE_VARIABLE
from roost.devices import leases, providers, visible
from roost.devices.card import Card
from roost.devices.leases import Busy, Holder, Leases


class Needed(NamedTuple):
    """What a session will compute on."""

    cards: Sequence[Card] = ()
    notes: Sequence[str] = ()
    """What a person should hear about it."""


def needed(request: Mapping[str, Any]) -> Needed:
    """The cards of a session: those that were chosen, or the first ones that it sees, one for each rank; none
    where it computes on the CPU. Of simulated cards it takes leases, and computes on the CPU.

    Args:
        request: That of the session.

    Raises:
        RoostError: As `roost.devices.visible.cards`, where GPUs were asked for.
    """
    device, named = request.get("device"), request.get("cards")
    if device == "cpu" or not (providers.is_simulated() or visible.torch_has_cuda()):
        return Needed()
    try:
        found = visible.cards()
    except Refused as error:
        if device == "cuda":
            raise
        return Needed(notes=[f"this run holds no lease of a GPU: {error.message}"])
    if named is not None:
        return Needed([card for card in found if card.id in named])
    return Needed(found[: int(request.get("ranks", 1))])


def require_free(cards: Sequence[Card]) -> None:
    """Makes sure, before anything is made for a session, that nobody else holds its cards.

    Raises:
        Busy: Somebody does.
        Refused: As `roost.devices.leases.take`.
    """
    hold(cards, None).close()


def hold(cards: Sequence[Card], package: Path | None) -> Leases:
    """Takes the leases of a session, whole cards; none where there are no cards. The supervisor gets copies;
    the caller then closes its own.

    Args:
        cards: Those that it computes on.
        package: Which others will be told.

    Raises:
        Busy: Somebody else holds them.
        Refused: As `roost.devices.leases.take`.
    """
    if not cards:
        return Leases("", ())
    try:
        under = os.environ.get(LEASE_VARIABLE, "")
        return leases.take(cards, None, Holder.own(package=str(package or "")), under=under)
    except Busy as busy:
        fix = "wait, take GPUs that are free (--devices 1), or compute on the CPU: -CPU"
        raise Busy(busy.message, held=busy.held, fix=fix) from None


def free_first(found: Sequence[Card], count: int) -> list[Card]:
    """So many of the cards: those that nobody holds, where they are enough, and of these the ones with the
    most memory free."""
    free = leases.unheld(found)
    return visible.freest(free if len(free) >= count else found, count)
