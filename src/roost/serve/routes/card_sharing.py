"""The resource request of DLNest's routes: an amount of memory, on one card or divided among
several."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from roost.base.errors import Refused, UsageError
from roost.base.text.byte_sizes import format_memory
from roost.devices import inventory
from roost.devices.memory_split import fewest_cards
from roost.devices.resource_request import MIN_CARD_MEMORY_MB, Strategy, TaskOptions
from roost.lab.policy.card_capacity import capacity_mb, usable
from roost.lab.scheduling.site_rules import read_rules
from roost.operations import lab
from roost.package import package_name
from roost.serve.http.route import RequestParameters

MemoryMb = Annotated[int, Meta(ge=-1, le=2**40)]


class SharedCardParameters(RequestParameters, frozen=True, kw_only=True):
    """The resources of a training."""

    memory_consumption: MemoryMb = -1
    """MB, of all its cards together; -1: the memory known from similar runs, or a whole card."""
    CPU: bool = False
    DDP: bool = False
    """One process for each card."""
    multi_GPU: bool = False
    """Several cards for one process, if no single card has as much memory."""


def task_options(parameters: SharedCardParameters) -> TaskOptions:
    """Returns the options of the task.

    Raises:
        UsageError: The parameters contradict each other.
        Refused: All cards together have less memory.
    """
    asked_mb = parameters.memory_consumption
    if 0 <= asked_mb < MIN_CARD_MEMORY_MB:
        raise UsageError(
            "is too little memory for a task",
            setting="memory_consumption",
            received=asked_mb,
            fix=f"give {MIN_CARD_MEMORY_MB} MB or more, or leave it out",
        )
    if parameters.CPU:
        if parameters.DDP or parameters.multi_GPU:
            both = "DDP" if parameters.DDP else "multi_GPU"
            raise UsageError(f"CPU and {both} exclude each other", fix="leave out one")
        return TaskOptions(gpus=0)  # no cards, so their memory does not matter
    several: Strategy | None = "ddp" if parameters.DDP else "single" if parameters.multi_GPU else None
    if several is None or (asked_mb < 0 and several == "single"):
        return TaskOptions(memory_mb=asked_mb if asked_mb > 0 else None)
    num, each_mb = _split_over_cards(asked_mb)
    strategy = several if num > 1 or several == "ddp" else None
    return TaskOptions(gpus=num, memory_mb=each_mb, strategy=strategy)


def requested_name(description: str, *, no_save: bool, use_description: bool) -> str | None:
    """Returns the name of the package; None: the package is named by the time.

    Raises:
        UsageError: The package is to be named by the description, which is empty.
    """
    if use_description and not (no_save or description):
        fix = "give a description"
        raise UsageError(
            "the package is to be named by its description, which is empty",
            setting="use_description",
            fix=fix,
        )
    return package_name.requested_name(None, description, no_save=no_save, use_description=use_description)


def _split_over_cards(asked_mb: int) -> tuple[int, int | None]:
    """Returns the number of cards, as few as suffice, and the MB of each; all cards and None (whole cards) if
    the amount is not given."""
    with lab.open_queue() as store:
        rules = read_rules(store)
    found = usable(inventory.read_cards(), rules)
    if not found:
        raise Refused("there is no card that tasks may use", fix="leave out DDP and multi_GPU")
    if asked_mb < 0:
        return len(found), None
    room = [capacity_mb(card, rules) for card in found]
    if (split := fewest_cards(asked_mb, room)) is not None:
        return split
    what = f"all cards together have less memory than {format_memory(asked_mb)}"
    raise Refused(what, fix="request less; `roost devices` lists the cards")
