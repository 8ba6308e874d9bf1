"""The cards of a session at a terminal, and their leases: whole cards, unless it declares its memory use."""

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
from roost.devices.resource_request import CardRequirement
from roost.lab.policy.card_capacity import spare_mb
from roost.lab.policy.policy_state import Rules
from roost.package.session_schema import SessionRequest


class SessionCards(NamedTuple):
    """The cards on which a session computes."""

    cards: Sequence[Card] = ()
    notes: Sequence[str] = ()
    """Notes for the user."""
    hide_others: bool = False
    """Whether the session must see only these cards, because otherwise it would take others."""
    memory_mb: int | None = None
    """The memory of each card that the session takes, in MB; None: whole cards."""

    @property
    def ids(self) -> list[str] | None:
        """The ids for CUDA_VISIBLE_DEVICES; None without cards."""
        return [card.id for card in self.cards] or None


def cards_of_session(request: SessionRequest, required: CardRequirement | None = None) -> SessionCards:
    """Returns the cards of a session: those that were chosen; else the first visible ones, one for each rank,
    or unleased ones where other processes hold these; none on the CPU. A session with simulated cards takes
    their leases and computes on the CPU.

    Args:
        request: The request of the session.
        required: What each card must be: where the first ones are others, the first that fit are taken.

    Raises:
        RoostError: As `roost.devices.visible_cards.cards`, if GPUs were requested.
    """
    found, chosen = _usable_cards(request.device, request.reserved_mb), request.cards
    if chosen is not None:
        return found._replace(cards=[card for card in found.cards if card.id in chosen])
    first = list(found.cards[: request.ranks])
    fitting = [card for card in found.cards if required is None or required.fits(card)]
    if fitting[: request.ranks] == first or len(fitting) < request.ranks:
        return _first_or_free(found, request.ranks)
    fit = _first_or_free(found._replace(cards=fitting), request.ranks)
    if fit.hide_others:
        return fit
    other = join_names([f"GPU {card.number}" for card in fit.cards])
    note = f"`require` asks for {required}: uses {other}, and sees no other GPU"
    return fit._replace(notes=[*fit.notes, note], hide_others=True)


def _first_or_free(found: SessionCards, count: int) -> SessionCards:
    """Returns the first ``count`` cards, unless another process holds one of them and as many others are
    free."""
    first = found._replace(cards=found.cards[:count])
    try:
        require_free(first)
    except CardsBusy as busy:
        free = _free_cards(found.cards, found.memory_mb)
        if len(free) < count:
            return first
        chosen = visible_cards.most_free(free, count)
        taken = join_names([f"GPU {card.number}" for card in first.cards if card.id in busy.leases])
        other = join_names([f"GPU {card.number}" for card in chosen])
        note = f"another process holds {taken}: uses {other}, and sees no other GPU"
        return SessionCards(chosen, [*found.notes, note], hide_others=True, memory_mb=found.memory_mb)
    return first


def choose_one_card(
    device: str, memory_mb: int | None = None, required: CardRequirement | None = None
) -> SessionCards:
    """Returns the card for a worker that needs only one, such as a check or an analysis: a free one if there
    is any.

    Args:
        device: auto, cpu, cuda, mps or xpu.
        memory_mb: The memory that it takes, in MB; None: the whole card.
        required: What the card is if there is such a one.

    Raises:
        CardsBusy: Other processes hold all of them.
        RoostError: As `cards_of_session` and `require_free`.
    """
    found = _usable_cards(device, memory_mb)
    if not found.cards:
        return found
    fitting = [card for card in found.cards if required is None or required.fits(card)]
    chosen = found._replace(cards=prefer_free(fitting or found.cards, 1, memory_mb))
    try:
        require_free(chosen)
    except CardsBusy as busy:
        raise CardsBusy(
            busy.message, leases=busy.leases, fix="wait, or compute on the CPU with -CPU"
        ) from None
    return chosen


def _usable_cards(device: object, memory_mb: int | None) -> SessionCards:
    """Returns the cards that torch, or a simulation, can use."""
    if not device_types.may_use_cards(device):
        return SessionCards()
    if not (inventory.is_simulated() or visible_cards.torch_can_compute()):
        return SessionCards()
    try:
        return SessionCards(visible_cards.cards(), memory_mb=memory_mb)
    except Refused as error:
        if device == device_types.CARDS:
            raise
        return SessionCards(notes=[f"this session takes no lease of a GPU: {error.message}"])


def require_free(session_cards: SessionCards) -> None:
    """Checks, before anything is made for a session, that other processes leave it its cards.

    Raises:
        CardsBusy: Another process holds one.
        Refused: As `roost.devices.lease.take`.
    """
    take_leases(session_cards, None).close()


def take_leases(session_cards: SessionCards, package: Path | None) -> Leases:
    """Takes the leases of a session; none without cards. The supervisor gets copies of the descriptors; the
    caller then closes its own.

    Args:
        session_cards: The cards of the session.
        package: The package that other users see as the holder.

    Raises:
        CardsBusy: Another process holds one.
        Refused: As `roost.devices.lease.take`.
    """
    cards = session_cards.cards
    if not cards:
        return Leases("", ())
    try:
        under = os.environ.get(LEASE_VARIABLE, "")
        return lease.take(
            cards,
            session_cards.memory_mb,
            LeaseHolder.this_process(package=str(package or "")),
            parent_token=under,
            reserve_mb=_reserve_mb(cards, session_cards.memory_mb),
        )
    except CardsBusy as busy:
        fix = "wait, or queue it with `roost submit`, or compute on the CPU with -CPU"
        raise CardsBusy(busy.message, leases=busy.leases, fix=fix) from None


def prefer_free(found: Sequence[Card], count: int, memory_mb: int | None = None) -> list[Card]:
    """Returns ``count`` of the cards: free ones if there are enough, and among the candidates those with the
    most free memory.

    Args:
        found: The cards to choose from.
        count: How many.
        memory_mb: The memory of each that must be free of leases, in MB; None: the whole card.
    """
    free = _free_cards(found, memory_mb)
    return visible_cards.most_free(free if len(free) >= count else found, count)


def _free_cards(found: Sequence[Card], memory_mb: int | None) -> list[Card]:
    if memory_mb is None:
        return lease.unleased_cards(found)
    return lease.cards_with_capacity(found, memory_mb, reserve_mb=_reserve_mb(found, memory_mb))


def _reserve_mb(cards: Sequence[Card], memory_mb: int | None) -> int:
    """Returns the memory of a shared card that no session takes, as the lab leaves it."""
    return 0 if memory_mb is None else max((spare_mb(card, Rules()) for card in cards), default=0)
