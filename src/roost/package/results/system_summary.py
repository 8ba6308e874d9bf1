"""What cards, host and processes of a session did, in a few numbers: means, peaks, energy and its cost."""

# Standard library only

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from roost.devices.sampling.machine_columns import CARD_COLUMNS
from roost.package.results import system_metrics
from roost.package.results.system_metrics import SystemColumns, SystemRow
from roost.package.session_schema import CardUse, SystemUse

PRICE_VARIABLE = "ROOST_PRICE_PER_KWH"
"""``0.32``, or with a currency ``0.32 EUR``."""
_PRICE = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([^\s0-9]{0,8})\s*")
_JOULES_PER_KWH = 3.6e6


class SystemSummary:
    """Adds up rows as they come.

    Args:
        columns: The names of the columns of each row.
    """

    def __init__(self, columns: Sequence[str]) -> None:
        self._places = {name: at for at, name in enumerate(columns)}
        self._sums = [0.0] * len(columns)
        self._seconds = [0.0] * len(columns)
        self._peaks = [-math.inf] * len(columns)
        self._measured_seconds = 0.0

    def add(self, row: SystemRow) -> None:
        """Adds a row."""
        self._measured_seconds += row.seconds
        for at, value in enumerate(row.means):
            if value is not None:
                self._sums[at] += value * row.seconds
                self._seconds[at] += row.seconds
                peak = row.peaks[at]
                if peak is not None and peak > self._peaks[at]:
                    self._peaks[at] = peak

    def result(
        self, cards: Sequence[Mapping[str, Any]], host: Mapping[str, Any], environment: Mapping[str, str]
    ) -> SystemUse:
        """Returns the numbers.

        Args:
            cards: The cards of the session, in the order of their columns.
            host: name, cores and memory_mb of the machine.
            environment: The variables among which `PRICE_VARIABLE` is looked up.
        """
        used = [self._card(number, card) for number, card in enumerate(cards)]
        energies = [one.energy_kwh for one in used if one.energy_kwh is not None]
        found = SystemUse(
            seconds=round(self._measured_seconds, 1),
            cards=used,
            energy_kwh=round(math.fsum(energies), 6) if energies else None,
            cpu_seconds=_rounded(self._integral("session/cores")),
            read_mb=_rounded(self._integral("session/read_mb_s")),
            written_mb=_rounded(self._integral("session/write_mb_s")),
            host={
                **host,
                "cpu": _rounded(self._mean("host/cpu")),
                "peak_memory_mb": _rounded(self._peak("host/memory_mb")),
            },
        )
        add_cost(found, environment)
        return found

    def _card(self, number: int, card: Mapping[str, Any]) -> CardUse:
        prefix = f"gpu{number}/"
        throttled = [self._mean(prefix + name) for name in CARD_COLUMNS if name.startswith("throttled_")]
        known = [share for share in throttled if share is not None]
        joules = self._integral(f"{prefix}power")
        return CardUse(
            id=card.get("id", ""),
            name=card.get("name", ""),
            total_mb=card.get("total_mb"),
            utilization=_rounded(self._mean(f"{prefix}utilization")),
            peak_memory_mb=_rounded(self._peak(f"{prefix}memory_mb")),
            power=_rounded(self._mean(f"{prefix}power")),
            temperature=_rounded(self._peak(f"{prefix}temperature")),
            throttled=_rounded(min(100.0, math.fsum(known))) if known else None,
            energy_kwh=None if joules is None else round(joules / _JOULES_PER_KWH, 6),
        )

    def _mean(self, name: str) -> float | None:
        at = self._places.get(name)
        return self._sums[at] / self._seconds[at] if at is not None and self._seconds[at] else None

    def _peak(self, name: str) -> float | None:
        at = self._places.get(name)
        return self._peaks[at] if at is not None and self._seconds[at] else None

    def _integral(self, name: str) -> float | None:
        at = self._places.get(name)
        return self._sums[at] if at is not None and self._seconds[at] else None


def add_cost(use: SystemUse, environment: Mapping[str, str]) -> None:
    """Adds the cost of the energy, if a price is set; if that is no price, a note that says so."""
    text = environment.get(PRICE_VARIABLE, "")
    if not text.strip() or use.energy_kwh is None:
        return
    price = _PRICE.fullmatch(text)
    if price is None:
        use.trouble = f"{PRICE_VARIABLE} is {text[:40]!r}, which is no price such as 0.32 or '0.32 EUR'"
        return
    use.price_per_kwh, use.currency = float(price[1]), price[2]
    use.cost = round(use.energy_kwh * use.price_per_kwh, 6)


def from_columns(found: SystemColumns, environment: Mapping[str, str]) -> SystemUse:
    """Returns the numbers of a session without them in its record: it runs, or its supervisor was killed."""
    summary = SystemSummary(found.names)
    for row in system_metrics.rows_of(found, found.names):
        summary.add(row)
    return summary.result(found.cards, found.host, environment)


def read_use(package: Path, session: int, environment: Mapping[str, str]) -> SystemUse | None:
    """Returns the numbers of a session from its rows; None if there are none."""
    found = system_metrics.read_file(package / system_metrics.FOLDER / f"{session}.jsonl", session)
    return None if found is None else from_columns(found, environment)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
