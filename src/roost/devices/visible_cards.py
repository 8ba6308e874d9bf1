"""The GPUs that CUDA_VISIBLE_DEVICES leaves to a process, read without importing torch."""

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
ORDER_VARIABLE = "CUDA_DEVICE_ORDER"
_GB_OF_MB = 1024


def cards(environment: Mapping[str, str] = os.environ) -> list[Card]:
    """Returns the GPUs that CUDA_VISIBLE_DEVICES leaves, in its order; without it all, in nvidia-smi's order.

    A number in the variable counts as nvidia-smi does. CUDA itself counts the same way if CUDA_DEVICE_ORDER
    is PCI_BUS_ID, as workers have it unless the user sets it, or if all cards are of one model. Of MIG
    instances a process sees only the first, and then no whole GPU: older drivers behave so, and newer ones
    show at least this instance.

    Raises:
        Refused: The driver does not answer, or one of these cards has failed.
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
    """Returns why `cards` is empty, or why torch cannot use its cards."""
    if inventory.excludes_real_cards(environment):
        return f"{inventory.VARIABLE} is {environment[inventory.VARIABLE]!r}"
    if not torch_has_cuda():
        if _torch_was_built_for("hip"):
            return "torch here was built for ROCm, and roost lists NVIDIA's cards only"
        return "torch here was built without CUDA"
    if (value := environment.get(VARIABLE)) is not None:
        return f"{VARIABLE} is {value!r}"
    return "there is none, or its driver is not loaded (nvidia-smi shows it)"


def torch_can_compute(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether torch can compute on the cards: it was built for CUDA, and the cards are real."""
    return torch_has_cuda() and not inventory.excludes_real_cards(environment)


def torch_has_cuda() -> bool:
    """Whether torch was built for NVIDIA's CUDA, according to its files. A build for ROCm was not: on AMD's
    GPUs it computes under the name of CUDA, but no card of them is listed here."""
    return _torch_was_built_for("cuda")


def _torch_was_built_for(library: str) -> bool:
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        return False
    file = Path(found.origin).with_name("version.py")
    return re.search(rf"^{library}\b.*= *['\"]", file.read_text(), re.MULTILINE) is not None


def most_free(found: Sequence[Card], count: int) -> list[Card]:
    """Returns the ``count`` cards with the most free memory, ordered by number. Memory is compared in whole
    GB; of equals the first ones win."""
    by_memory = sorted(found, key=lambda card: -(card.free_mb // _GB_OF_MB))
    return sorted(by_memory[:count], key=lambda card: card.number)


def _visible(found: Sequence[Card], value: str | None) -> list[Card]:
    """The cards that the variable names; as in CUDA, an entry that names no card ends the list."""
    if value is None:
        return list(found)
    whole = list(dict.fromkeys(card.part_of or card.id for card in found))
    names = {*whole, *(card.id for card in found)}
    seen: list[Card] = []
    for entry in (one.strip() for one in value.split(",")):
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
