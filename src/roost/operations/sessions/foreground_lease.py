"""The cards of a session at a terminal, and their leases: whole cards, because its memory use is not
declared."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from roost.base.errors import Refused
from roost.base.system.worker_protocol import LEASE_VARIABLE
from roost.base.text.word_list import join_names
from roost.devices import device_types, inventory, lease, visible_cards
from roost.devices.card import Card
from roost.devices.lease import CardsBusy, LeaseHolder, Leases
from roost.package.session_schema import SessionRequest


class SessionCards(NamedTuple):
    """The cards on which a session computes."""

    cards: Sequence[Card] = ()
    notes: Sequence[str] = ()
    """Notes for the user."""
    hide_others: bool = False
    """Whether the session must see only these cards, because otherwise it would take others."""

    @property
    def ids(self) -> list[str] | None:
        """The ids for CUDA_VISIBLE_DEVICES; None without cards."""
        return [card.id for card in self.cards] or None


def cards_of_session(request: SessionRequest) -> SessionCards:
    """Returns the cards of a session: those that were chosen; else the first visible ones, one for each rank,
    or unleased ones where other processes hold these; none on the CPU. A session with simulated cards takes
    their leases and computes on the CPU.

    Args:
        request: The request of the session.

    Raises:
        RoostError: As `roost.devices.visible_cards.cards`, if GPUs were requested.
    """
    found, chosen = _usable_cards(request.device), request.cards
    if chosen is not None:
        return found._replace(cards=[card for card in found.cards if card.id in chosen])
    return _first_or_free(found, request.ranks)


def _first_or_free(found: SessionCards, count: int) -> SessionCards:
    """Returns the first ``count`` cards, unless another process holds one of them and as many others are
    free."""
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
        note = f"another process holds {taken}: uses {other}, and sees no other GPU"
        return SessionCards(chosen, [*found.notes, note], hide_others=True)
    return first


def choose_one_card(device: str) -> SessionCards:
    """Returns the card for a worker that needs only one, such as a check or an analysis: an unleased one if
    there is any.

    Args:
        device: auto, cpu, cuda, mps or xpu.

    Raises:
        CardsBusy: Other processes hold all of them.
        RoostError: As `cards_of_session` and `require_unleased`.
    """
    found = _usable_cards(device)
    if not found.cards:
        return found
    chosen = found._replace(cards=prefer_unleased(found.cards, 1))
    try:
        require_unleased(chosen.cards)
    except CardsBusy as busy:
        raise CardsBusy(
            busy.message, leases=busy.leases, fix="wait, or compute on the CPU with -CPU"
        ) from None
    return chosen


def _usable_cards(device: object) -> SessionCards:
    """Returns the cards that torch, or a simulation, can use."""
    if not device_types.may_use_cards(device):
        return SessionCards()
    if not (inventory.is_simulated() or visible_cards.torch_can_compute()):
        return SessionCards()
    try:
        return SessionCards(visible_cards.cards())
    except Refused as error:
        if device == device_types.CARDS:
            raise
        return SessionCards(notes=[f"this session takes no lease of a GPU: {error.message}"])


def require_unleased(cards: Sequence[Card]) -> None:
    """Checks, before anything is made for a session, that no other process holds its cards.

    Raises:
        CardsBusy: Another process holds one.
        Refused: As `roost.devices.lease.take`.
    """
    take_leases(cards, None).close()


def take_leases(cards: Sequence[Card], package: Path | None) -> Leases:
    """Takes the leases of a session, whole cards; none without cards. The supervisor gets copies of the
    descriptors; the caller then closes its own.

    Args:
        cards: The cards of the session.
        package: The package that other users see as the holder.

    Raises:
        CardsBusy: Another process holds one.
        Refused: As `roost.devices.lease.take`.
    """
    if not cards:
        return Leases("", ())
    try:
        under = os.environ.get(LEASE_VARIABLE, "")
        return lease.take(
            cards, None, LeaseHolder.this_process(package=str(package or "")), parent_token=under
        )
    except CardsBusy as busy:
        fix = "wait, or queue it with `roost submit`, or compute on the CPU with -CPU"
        raise CardsBusy(busy.message, leases=busy.leases, fix=fix) from None


def prefer_unleased(found: Sequence[Card], count: int) -> list[Card]:
    """Returns ``count`` of the cards: unleased ones if there are enough, and among the candidates those with
    the most free memory."""
    free = lease.unleased_cards(found)
    return visible_cards.most_free(free if len(free) >= count else found, count)
