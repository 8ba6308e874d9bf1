"""The cards of this machine. All of roost reads them here.

``ROOST_DEVICES`` selects the source: ``nvml`` (the default) NVIDIA's driver, ``cpu`` no cards, ``sim:…``
simulated cards (`roost.devices.simulated_cards`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from roost.base.errors import UsageError
from roost.devices import simulated_cards
from roost.devices.card import Card
from roost.devices.driver.nvml import DriverClient

VARIABLE = "ROOST_DEVICES"

SIMULATED = "sim:"
"""How the value of `VARIABLE` begins for simulated cards."""
_NVML, _CPU = "nvml", "cpu"


def read_cards(environment: Mapping[str, str] = os.environ, timeout_seconds: float = 2.0) -> list[Card]:
    """Returns all cards as they are now, in the order of nvidia-smi; each MIG instance is a card.

    Args:
        environment: The variables among which ROOST_DEVICES is looked up.
        timeout_seconds: See `open_inventory`.

    Raises:
        Refused: The driver does not report its cards.
        UsageError: ROOST_DEVICES has an unknown form.
        NotFound: The scenario file does not exist.
        ConfigError: The scenario cannot be read.
    """
    with open_inventory(environment, timeout_seconds) as read:
        return read()


@contextmanager
def open_inventory(
    environment: Mapping[str, str] = os.environ, timeout_seconds: float = 2.0
) -> Iterator[Callable[[], list[Card]]]:
    """Gives a function that returns the cards, or raises, as `read_cards` does, and keeps the driver open
    meanwhile: for repeated reading, by one thread.

    Once the cards are known, a call takes at most ``timeout_seconds``: if the driver hangs, it returns the
    cards as they were, with `Card.trouble`.

    Raises:
        UsageError: ROOST_DEVICES has an unknown form.
    """
    source = environment.get(VARIABLE) or _NVML
    if source == _NVML:
        with DriverClient(timeout_seconds=timeout_seconds) as client:
            yield client.cards
    elif source == _CPU:
        yield list
    elif source.startswith(SIMULATED):
        text = source.removeprefix(SIMULATED)
        yield lambda: simulated_cards.cards(text, time.time(), setting=VARIABLE)
    else:
        raise UsageError(
            "unknown source of devices",
            setting=VARIABLE,
            received=source,
            fix="write nvml, cpu, sim:4x24GB, sim:2x80GB:H100,2x24GB:RTX4090 or sim:/folder/scenario.json",
        )


def is_simulated(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the cards are simulated: nothing can compute on them."""
    return environment.get(VARIABLE, "").startswith(SIMULATED)


def excludes_real_cards(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether ROOST_DEVICES excludes the machine's real cards: it selects simulated ones, or none."""
    return (environment.get(VARIABLE) or _NVML) != _NVML
