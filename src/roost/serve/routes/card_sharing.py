"""The resource request of DLNest's routes: an amount of memory, on one card or divided among
several."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from roost.base.errors import UsageError
from roost.devices import inventory
from roost.devices.resource_request import MIN_CARD_MEMORY_MB, TaskOptions
from roost.lab.policy.card_capacity import capacity_mb, usable
from roost.lab.scheduling.site_rules import read_rules
from roost.operations import lab
from roost.operations.queue import card_request
from roost.operations.queue.card_request import CardRequest
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
    memory_mb = asked_mb if asked_mb > 0 else None
    request = CardRequest(memory_mb, parameters.multi_GPU, parameters.DDP, parameters.CPU)
    return card_request.task_options(request, _capacities_mb)


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


def _capacities_mb() -> list[int]:
    """Returns the memory that tasks may reserve on each card that they may use."""
    with lab.open_queue() as store:
        rules = read_rules(store)
    return [capacity_mb(card, rules) for card in usable(inventory.read_cards(), rules)]
