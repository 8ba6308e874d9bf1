"""The cards of this machine, whoever provides them: the one entrance for all that ask.

``ROOST_DEVICES`` says who: ``nvml``, as without it, NVIDIA's driver; ``cpu`` nobody; ``sim:…`` makes them up
(`roost.devices.simulated_cards`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from roost.base.errors import UsageError
from roost.devices import simulated_cards
from roost.devices.card import Card
from roost.devices.nvml import DriverClient

VARIABLE = "ROOST_DEVICES"

_SIMULATED = "sim:"
_NVML, _CPU = "nvml", "cpu"


def read_cards(environment: Mapping[str, str] = os.environ, timeout_seconds: float = 2.0) -> list[Card]:
    """The cards as they are now, all of them, in the order of nvidia-smi; each MIG instance is one.

    Args:
        environment: Whose ROOST_DEVICES counts.
        timeout_seconds: For a driver that is open; as `open_inventory`.

    Raises:
        Refused: The driver does not tell.
        UsageError: ROOST_DEVICES has no form that is known.
        NotFound: It names a scenario that is not there.
        ConfigError: The scenario cannot be read.
    """
    with open_inventory(environment, timeout_seconds) as ask:
        return ask()


@contextmanager
def open_inventory(
    environment: Mapping[str, str] = os.environ, timeout_seconds: float = 2.0
) -> Iterator[Callable[[], list[Card]]]:
    """For who asks again and again: inside of ``with`` the driver stays open, and each call gives the cards,
    or raises, as `read_cards` does. Once they are known, nobody waits longer than ``timeout_seconds``: of a driver
    that hangs they come as they were, with `Card.trouble`. For one thread.

    Raises:
        UsageError: ROOST_DEVICES has no form that is known.
    """
    asked = environment.get(VARIABLE) or _NVML
    if asked == _NVML:
        with DriverClient(timeout_seconds=timeout_seconds) as watcher:
            yield watcher.cards
    elif asked == _CPU:
        yield list
    elif asked.startswith(_SIMULATED):
        text = asked.removeprefix(_SIMULATED)
        yield lambda: simulated_cards.cards(text, time.time(), setting=VARIABLE)
    else:
        raise UsageError(
            "nobody provides such devices",
            setting=VARIABLE,
            received=asked,
            fix="write nvml, cpu, sim:4x24GB, sim:2x80GB:H100,2x24GB:RTX4090 or sim:/folder/scenario.json",
        )


def is_simulated(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the cards are not there, so that nothing can compute on them."""
    return environment.get(VARIABLE, "").startswith(_SIMULATED)


def excludes_real_cards(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether nothing can compute on a card, whatever the machine has: they are simulated, or it is said that
    there are none."""
    return (environment.get(VARIABLE) or _NVML) != _NVML
