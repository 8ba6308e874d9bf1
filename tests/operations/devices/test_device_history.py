"""The history of the machine: at which interval, and who held the cards."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from roost.base.errors import ConfigError
from roost.devices import lease_files
from roost.devices.sampling import sample_ring
from roost.operations.devices import device_history
from tests.devices.leasing import card, take
from tests.devices.sampling import rings

CARDS = [{"id": f"SIM-{n}", "name": "H100", "total_mb": 24_576} for n in range(2)]


@pytest.fixture
def samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ROOST_LEASES", str(tmp_path / "leases"))
    rings.boot_a_day_ago(monkeypatch)
    return rings.shared_folder(tmp_path)


def fill(folder: Path, seconds: int, step: int = 1) -> None:
    """So many seconds until now: the CPU busy for 25 %, then the last tenth for 75 %."""
    ring = rings.writer(folder, CARDS)
    now = sample_ring.boot_seconds()
    for ago in range(seconds, -1, -step):
        busy = 75.0 if ago < seconds / 10 else 25.0
        values = [
            busy if name in ("host/cpu", "SIM-1/utilization") else float("nan") for name in ring.columns
        ]
        ring.add(rings.sample(ring, now - ago)._replace(values=tuple(values)))
    ring.close()


def test_without_samples_it_is_empty(samples: Path) -> None:
    found = device_history.history()
    assert found.times == [] and found.cards == [] and found.sampler_pid is None


@pytest.mark.parametrize(
    ("since", "seconds", "least"), [("10min", 1, 590), ("1h", 10, 350), ("2h", 60, 115), ("3d", 60, 115)]
)
def test_the_finest_interval_that_is_stored_for_the_time(
    samples: Path, since: str, seconds: float, least: int
) -> None:
    fill(samples, 7300)
    found = device_history.history(since)
    assert found.seconds == seconds and least <= len(found.times)
    assert found.times == sorted(found.times) and found.until - found.times[-1] < 2, "up to now"
    assert found.times[0] - found.since < 2 * seconds + 1 or since == "3d"
    assert {len(column) for column in found.host.values()} == {len(found.times)}
    cpu = [value for value in found.host["cpu"] if value is not None]
    assert cpu[-1] == 75 and (since == "10min" or cpu[0] == 25)
    assert found.cards[1].columns["utilization"][-1] == 75
    assert set(found.cards[0].columns["utilization"]) == {None}
    assert found.sampler_pid == os.getpid() and found.machine.cores == 2


def test_who_held_a_card(samples: Path) -> None:
    fill(samples, 60)
    held = take(card(id="SIM-0"), mb=1000)
    (now,) = device_history.history().cards[0].holders
    assert now.end is None and now.user == lease_files.user_name(os.geteuid())
    later = time.time() + 2
    os.utime(held.fds[0], (later, later))  # as a supervisor does once a minute
    held.close()
    (ended,) = device_history.history().cards[0].holders
    assert ended.end is not None and ended.begin == now.begin
    # The file of the first lease is removed, and its row is in the ledger.
    again = take(card(id="SIM-0"), mb=1000)
    first, second = device_history.history().cards[0].holders
    assert (first.begin, second.end) == (pytest.approx(now.begin, abs=0.01), None)
    assert device_history.history().cards[1].holders == []
    again.close()


def test_what_is_no_time(samples: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        device_history.history("soon")
    assert caught.value.setting == "--since"
