"""The metrics of a session in a few numbers."""

from __future__ import annotations

import pytest

from roost.package.results import system_metrics
from roost.package.results.system_metrics import SystemRow
from roost.package.results.system_summary import PRICE_VARIABLE, SystemSummary
from roost.package.session_schema import SystemUse

NAMES = system_metrics.column_names(2)


def summed(environment: dict[str, str], *rows: dict[str, float], seconds: float = 3600.0) -> SystemUse:
    summary = SystemSummary(NAMES)
    for at, given in enumerate(rows):
        values = [given.get(name) for name in NAMES]
        summary.add(SystemRow(seconds * at, seconds, values, values))
    cards = [{"id": "GPU-1", "name": "H100", "total_mb": 81_920}, {"id": "GPU-2"}]
    return summary.result(cards, {"name": "vm"}, environment)


def test_means_peaks_and_energy() -> None:
    rows = (
        {"gpu0/power": 300.0, "gpu0/utilization": 90.0, "gpu0/memory_mb": 10.0, "session/cores": 2.0},
        {"gpu0/power": 500.0, "gpu0/utilization": 70.0, "gpu0/memory_mb": 30.0, "host/cpu": 40.0},
        {"gpu1/power": 100.0, "gpu0/throttled_power": 100.0, "gpu0/throttled_heat": 50.0},
    )
    use = summed({}, *rows)
    first, second = use.cards
    assert (first.utilization, first.peak_memory_mb, first.power) == (80.0, 30.0, 400.0)
    assert (first.energy_kwh, second.energy_kwh, use.energy_kwh) == (0.8, 0.1, 0.9), "in kWh, over the hours"
    assert (first.throttled, second.utilization, second.id) == (100.0, None, "GPU-2")
    assert use.cpu_seconds == 7200.0 and use.host == {"name": "vm", "cpu": 40.0, "peak_memory_mb": None}
    assert use.seconds == 3 * 3600 and use.cost is None


@pytest.mark.parametrize(
    ("price", "cost", "currency"),
    [("0.30", 0.3, ""), ("0.30 EUR", 0.3, "EUR"), (" .5€ ", 0.5, "€"), ("2", 2.0, ""), ("", None, "")],
)
def test_the_cost_at_a_price(price: str, cost: float | None, currency: str) -> None:
    use = summed({PRICE_VARIABLE: price}, {"gpu0/power": 1000.0})
    assert (use.energy_kwh, use.cost, use.currency) == (1.0, cost, currency) and use.trouble is None


@pytest.mark.parametrize("price", ["free", "-1", "1,5", "1 2", "nan", "1e3", "x" * 1000])
def test_what_is_no_price_is_said(price: str) -> None:
    use = summed({PRICE_VARIABLE: price}, {"gpu0/power": 1000.0})
    assert use.cost is None and PRICE_VARIABLE in (use.trouble or "") and len(use.trouble or "") < 200


def test_nothing_measured_is_nothing_not_zero() -> None:
    use = summed({PRICE_VARIABLE: "1"}, {})
    assert use.energy_kwh is None and use.cost is None and use.cards[0].utilization is None
