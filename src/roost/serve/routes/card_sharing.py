"""What document 000's routes ask of cards, in roost's words: so much memory, of one or of several."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from roost.base.errors import Refused, UsageError
from roost.base.text.byte_sizes import format_memory
from roost.devices import inventory
from roost.lab.policy.card_capacity import capacity_mb, usable
from roost.lab.queue.task import ResourceRequest
from roost.lab.scheduling.site_rules import read_rules
from roost.operations import lab
from roost.operations.queue.resources import TaskOptions
from roost.package import package_name
from roost.serve.http.route import RequestParameters

MemoryMb = Annotated[int, Meta(ge=-1, le=2**40)]


class SharedCardParameters(RequestParameters, frozen=True, kw_only=True):
    """What a training needs."""

    memory_consumption: MemoryMb = -1
    """MB, of all its cards together; -1: what is known of runs like it, or a whole card."""
    CPU: bool = False
    DDP: bool = False
    """A process for each card."""
    multi_GPU: bool = False
    """Several cards for one process, where no card has as much memory."""


def task_options(parameters: SharedCardParameters) -> TaskOptions:
    """The same for an operation.

    Raises:
        UsageError: It contradicts itself.
        Refused: All cards together have less memory.
    """
    asked_mb = parameters.memory_consumption
    if asked_mb == 0:
        raise UsageError(
            "is no memory", setting="memory_consumption", received=0, fix="give MB, or leave it out"
        )
    if parameters.CPU:
        if parameters.DDP or parameters.multi_GPU:
            both = "DDP" if parameters.DDP else "multi_GPU"
            raise UsageError(f"CPU and {both} exclude each other", fix="leave out one")
        return TaskOptions()  # no cards: what memory it takes of them does not matter
    several = "ddp" if parameters.DDP else "single" if parameters.multi_GPU else None
    if several is None or (asked_mb < 0 and several == "single"):
        need = ResourceRequest(memory_mb=asked_mb if asked_mb > 0 else None)
        return TaskOptions(need=need, cards_from_settings=True)
    num, each_mb = _split_over_cards(asked_mb)
    strategy = several if num > 1 or several == "ddp" else None
    return TaskOptions(need=ResourceRequest(cards=num, memory_mb=each_mb), strategy=strategy)


def requested_name(description: str, *, no_save: bool, use_description: bool) -> str | None:
    """What its package is called; None: by the time.

    Raises:
        UsageError: By its description, and there is none.
    """
    if no_save:
        return "NOSAVE"
    if not use_description:
        return None
    if not description:
        fix = "give a description"
        raise UsageError(
            "it is to be called by its description, and has none", setting="use_description", fix=fix
        )
    return package_name.folder_name(description)


def _split_over_cards(asked_mb: int) -> tuple[int, int | None]:
    """How many cards, as few as suffice, and how much of each; all, and whole, where nobody has said how
    much is needed."""
    with lab.open_queue() as store:
        rules = read_rules(store)
    found = usable(inventory.read_cards(), rules)
    if not found:
        raise Refused("there is no card to share the work among", fix="leave DDP and multi_GPU out")
    if asked_mb < 0:
        return len(found), None
    room = sorted((capacity_mb(card, rules) for card in found), reverse=True)
    for num, least in enumerate(room, 1):
        if (each_mb := -(-asked_mb // num)) <= least:
            return num, each_mb
    what = f"{format_memory(asked_mb)} are more than all cards have together"
    raise Refused(what, fix="ask for less; `roost devices` lists them")
