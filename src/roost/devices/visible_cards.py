"""The GPUs that a process of this machine may use, and who uses them; torch is not imported."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from roost.base.errors import Refused
from roost.devices import inventory
from roost.devices.card import Card

VARIABLE = "CUDA_VISIBLE_DEVICES"
_GB_OF_MB = 1024


def cards(environment: Mapping[str, str] = os.environ) -> list[Card]:
    """The GPUs that CUDA_VISIBLE_DEVICES leaves, in its order; all without it, in the order of nvidia-smi.

    A number there counts as nvidia-smi does. CUDA itself counts so where CUDA_DEVICE_ORDER is PCI_BUS_ID, or
    the cards are alike. Of MIG instances a process sees the first alone, and then no whole GPU: so it is
    with older drivers, and newer ones show this one too.

    Raises:
        Refused: There is a driver, but it cannot tell, or one of these cards has failed.
        RoostError: As `roost.devices.inventory.read_cards`.
    """
    found = _visible(inventory.read_cards(environment), environment.get(VARIABLE))
    parts = [card for card in found if card.part_of]
    seen = [replace(card, number=number) for number, card in enumerate(parts[:1] or found)]
    for card in seen:
        if card.trouble:
            raise Refused(
                f"GPU {card.number} ({card.name}, {card.id}) cannot be used: {card.trouble}",
                fix=f"see what nvidia-smi says, leave it out by {VARIABLE}, or compute on the CPU: -CPU",
            )
    return seen


def no_cards_reason(environment: Mapping[str, str] = os.environ) -> str:
    """Why `cards` are none, or of no use to torch."""
    if inventory.excludes_real_cards(environment):
        return f"{inventory.VARIABLE} is {environment[inventory.VARIABLE]!r}"
    if not torch_has_cuda():
        return "torch here was built without CUDA"
    if (asked := environment.get(VARIABLE)) is not None:
        return f"{VARIABLE} is {asked!r}"
    return "there is none, or its driver is not loaded (nvidia-smi shows it)"


def torch_can_compute(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether torch can compute on the cards: it was built for it, and they are no simulated ones."""
    return torch_has_cuda() and not inventory.excludes_real_cards(environment)


def torch_has_cuda() -> bool:
    """Whether torch was built for CUDA, read from its files."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        return False
    file = Path(found.origin).with_name("version.py")
    return re.search(r"^cuda\b.*= *['\"]", file.read_text(), re.MULTILINE) is not None


def most_free(found: Sequence[Card], count: int) -> list[Card]:
    """The cards with the most free memory, in GB, the first ones where it is the same; in their own order."""
    by_memory = sorted(found, key=lambda card: -(card.free_mb // _GB_OF_MB))
    return sorted(by_memory[:count], key=lambda card: card.number)


def _visible(found: Sequence[Card], asked: str | None) -> list[Card]:
    """Those that the variable names; as in CUDA, what is no card ends the list."""
    if asked is None:
        return list(found)
    whole = list(dict.fromkeys(card.part_of or card.id for card in found))
    names = {*whole, *(card.id for card in found)}
    seen: list[Card] = []
    for entry in (one.strip() for one in asked.split(",")):
        named = entry
        if entry.isdecimal():
            if int(entry) >= len(whole):
                break
            named = whole[int(entry)]
        alike = [named] if named in names else [one for one in names if named and one.startswith(named)]
        if len(alike) != 1:
            break
        seen.append(next(card for card in found if alike[0] in (card.id, card.part_of)))
    return seen
