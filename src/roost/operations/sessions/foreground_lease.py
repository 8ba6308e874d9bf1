"""The leases of what is begun at a terminal: whole cards, for nobody has said how much of them it needs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from roost.base.errors import Refused
from roost.base.system.worker_protocol import LEASE_VARIABLE
from roost.base.text.word_list import join_names
from roost.devices import inventory, lease, visible_cards
from roost.devices.card import Card
from roost.devices.lease import CardsBusy, LeaseHolder, Leases


class SessionCards(NamedTuple):
    """What a session will compute on."""

    cards: Sequence[Card] = ()
    notes: Sequence[str] = ()
    """What a person should hear about it."""
    hide_others: bool = False
    """Whether it has to be shown these alone, as it would take others by itself."""

    @property
    def ids(self) -> list[str] | None:
        """What CUDA_VISIBLE_DEVICES calls them; None where there are none."""
        return [card.id for card in self.cards] or None


def cards_of_session(request: Mapping[str, Any]) -> SessionCards:
    """The cards of a session: those that were chosen, or the first ones that it sees, one for each rank, or
    free ones where others hold those; none where it computes on the CPU. Of simulated cards it takes leases,
    and computes on the CPU.

    Args:
        request: That of the session.

    Raises:
        RoostError: As `roost.devices.visible_cards.cards`, where GPUs were asked for.
    """
    found, named = _usable_cards(request.get("device")), request.get("cards")
    if named is not None:
        return found._replace(cards=[card for card in found.cards if card.id in named])
    return _first_or_free(found, int(request.get("ranks", 1)))


def _first_or_free(found: SessionCards, count: int) -> SessionCards:
    """The first so many, unless somebody holds one of them and as many others are free."""
    first = found._replace(cards=found.cards[:count])
    try:
        require_unleased(first.cards)
    except CardsBusy as busy:
        free = lease.unleased_cards(found.cards)
        if len(free) < count:
            return first
        chosen = visible_cards.most_free(free, count)
        taken = join_names([f"GPU {card.number}" for card in first.cards if card.id in busy.leases])
        other = join_names([f"GPU {card.number}" for card in chosen])
        note = f"somebody holds {taken}: on {other}, and it sees no other"
        return SessionCards(chosen, [*found.notes, note], hide_others=True)
    return first


def choose_one_card(device: str) -> SessionCards:
    """The card of what computes on one beside the trainings: one that nobody holds, if there is one.

    Args:
        device: auto, cpu or cuda.

    Raises:
        Busy: Others hold all of them.
        RoostError: As `cards_of_session`, and `require_unleased`.
    """
    found = _usable_cards(device)
    if not found.cards:
        return found
    chosen = found._replace(cards=prefer_unleased(found.cards, 1))
    try:
        require_unleased(chosen.cards)
    except CardsBusy as busy:
        raise CardsBusy(busy.message, leases=busy.leases, fix="wait, or compute on the CPU: -CPU") from None
    return chosen


def _usable_cards(device: object) -> SessionCards:
    """The cards that are there to compute on."""
    if device == "cpu" or not (inventory.is_simulated() or visible_cards.torch_can_compute()):
        return SessionCards()
    try:
        return SessionCards(visible_cards.cards())
    except Refused as error:
        if device == "cuda":
            raise
        return SessionCards(notes=[f"this run holds no lease of a GPU: {error.message}"])


def require_unleased(cards: Sequence[Card]) -> None:
    """Makes sure, before anything is made for a session, that nobody else holds its cards.

    Raises:
        Busy: Somebody does.
        Refused: As `roost.devices.lease.take`.
    """
    take_leases(cards, None).close()


def take_leases(cards: Sequence[Card], package: Path | None) -> Leases:
    """Takes the leases of a session, whole cards; none where there are no cards. The supervisor gets copies;
    the caller then closes its own.

    Args:
        cards: Those that it computes on.
        package: Which others will be told.

    Raises:
        Busy: Somebody else holds them.
        Refused: As `roost.devices.lease.take`.
    """
    if not cards:
        return Leases("", ())
    try:
        under = os.environ.get(LEASE_VARIABLE, "")
        return lease.take(cards, None, LeaseHolder.this_process(package=str(package or "")), parent_token=under)
    except CardsBusy as busy:
        fix = "wait, or let the lab begin it in its turn: `roost submit`; or compute on the CPU: -CPU"
        raise CardsBusy(busy.message, leases=busy.leases, fix=fix) from None


def prefer_unleased(found: Sequence[Card], count: int) -> list[Card]:
    """So many of the cards: those that nobody holds, where they are enough, and of these the ones with the
    most memory free."""
    free = lease.unleased_cards(found)
    return visible_cards.most_free(free if len(free) >= count else found, count)
