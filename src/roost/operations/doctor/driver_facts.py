"""The driver of the GPUs and the cards, read once for all checks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from roost.base.errors import RoostError
from roost.devices import inventory, visible_cards
from roost.devices.card import Card
from roost.devices.driver import nvml
from roost.devices.driver.driver_report import DriverError, DriverHealth

_PCI = Path("/sys/bus/pci/devices")
_NVIDIA, _DISPLAY = "0x10de", "0x03"
"""The vendor of NVIDIA's devices, and how the class of GPUs begins, in the files of the PCI bus."""


@dataclass(frozen=True, kw_only=True)
class DriverFacts:
    """The driver, the cards that it reports, and the GPUs on the bus."""

    source: str = "nvml"
    """The value of ROOST_DEVICES."""
    cards: Sequence[Card] = ()
    health: DriverHealth = field(default_factory=DriverHealth)
    error: str = ""
    bus_gpus: int = 0
    visible: str | None = None
    """CUDA_VISIBLE_DEVICES."""


def ask_driver() -> DriverFacts:
    """Asks the driver, which may take seconds, and counts NVIDIA's GPUs on the PCI bus."""
    source = os.environ.get(inventory.VARIABLE) or "nvml"
    bus_gpus, visible = _count_bus_gpus(_PCI), os.environ.get(visible_cards.VARIABLE)
    health, error, cards = DriverHealth(), "", list[Card]()
    try:
        cards = inventory.read_cards()
        if source == "nvml":
            health = nvml.read_health()
    except (RoostError, DriverError, OSError) as failure:
        error = str(failure)
    return DriverFacts(
        source=source, cards=cards, health=health, error=error, bus_gpus=bus_gpus, visible=visible
    )


def _count_bus_gpus(bus: Path) -> int:
    count = 0
    for device in bus.glob("*"):
        try:
            vendor, kind = (device / "vendor").read_text(), (device / "class").read_text()
        except OSError:
            continue
        count += vendor.startswith(_NVIDIA) and kind.startswith(_DISPLAY)
    return count
