"""Asks the cards for samples in a process of its own, which can be killed when the driver hangs.

``python -P -m roost.devices.sampling.card_process`` writes one line of JSON for each line of its input:
``{"gpus": [{"id": "GPU-6f1d…", "name": "H100", "total_mb": 81559, "values": {"utilization": 97, …}}]}``, in
which a card that does not answer has an ``error``; or ``{"error": …}``. ROOST_DEVICES selects the cards, as
in `roost.devices.inventory`. The process ends with its input, and when one answer takes longer than
`LIMIT_SECONDS`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from roost.base.errors import RoostError
from roost.devices import inventory, simulated_cards
from roost.devices.card import Card
from roost.devices.driver import driver_process

LIMIT_SECONDS = 40.0


def main() -> None:
    """Answers queries until the input ends."""
    sample = _source(os.environ.get(inventory.VARIABLE, ""))
    for _ in sys.stdin:
        # The signal's default action ends the process: a Python handler would wait for the driver.
        signal.setitimer(signal.ITIMER_REAL, LIMIT_SECONDS)
        answer = json.dumps(sample())
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(answer, flush=True)


def _source(selected: str) -> Callable[[], dict[str, Any]]:
    if selected.startswith(inventory.SIMULATED):
        text = selected.removeprefix(inventory.SIMULATED)
        return lambda: _simulated(text)
    import pynvml

    return driver_process.Driver(pynvml).sample


def _simulated(text: str) -> dict[str, Any]:
    try:
        cards = simulated_cards.cards(text, time.time(), setting=inventory.VARIABLE)
    except RoostError as error:
        return {"error": error.message}
    return {"gpus": [_as_json(card) for card in cards]}


def _as_json(card: Card) -> dict[str, Any]:
    found: dict[str, Any] = {"id": card.id, "name": card.name, "total_mb": card.total_mb}
    if card.trouble:
        return {**found, "error": card.trouble}
    values = {
        "utilization": card.utilization,
        "memory_mb": card.total_mb - card.free_mb,
        "power": card.power,
        "temperature": card.temperature,
    }
    return {**found, "values": {name: value for name, value in values.items() if value is not None}}


if __name__ == "__main__":
    main()
