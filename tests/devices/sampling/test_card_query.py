"""Asking the cards without waiting: the real process, with a driver that answers, hangs, fails and ends."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from roost.devices.sampling import card_query
from roost.devices.sampling.card_query import NO_ANSWER, NOT_ASKED, CardQuery, CardSample
from tests.devices.conftest import driver
from tests.devices.nvidia import GB, Driver
from tests.waiting import wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs pidfds")
__all__ = ["driver"]


@pytest.fixture
def query(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> Iterator[CardQuery]:
    """Of a machine with NVIDIA's driver."""
    monkeypatch.setattr(card_query, "_DRIVER_FILES", (os.devnull,))
    monkeypatch.setattr(card_query, "_RETRY_SECONDS", 0.0)
    monkeypatch.setenv("PYTHONPATH", str(driver.file.parent))
    made = CardQuery({})
    yield made
    pids = made.pids
    made.close()
    for pid in pids:
        os.waitpid(pid, 0)


def answer(query: CardQuery) -> list[CardSample]:
    found = wait_for(query.poll)
    assert found is not None
    return found


def test_a_sample_of_each_card(query: CardQuery, driver: Driver) -> None:
    driver.says({"uuid": "GPU-aa1", "watts": 500, "reasons": 0x4}, {"uuid": "GPU-bb2", "reasons": 0x48})
    answer(query)
    first, second = answer(query)
    assert (first.id, first.name, first.total_mb) == ("GPU-aa1", "NVIDIA H100", 80 * 1024)
    assert first.values["power"] == pytest.approx(500, rel=0.05), "by the counter of energy"
    assert {name: first.values[name] for name in ("utilization", "memory_busy", "temperature", "clock")} == {
        "utilization": 97, "memory_busy": 40, "temperature": 61, "clock": 1755,
    }  # fmt: skip
    assert first.values["memory_mb"] == 1024
    names = ("throttled_power", "throttled_heat", "throttled_other")
    assert [first.values[name] for name in names] == [100, 0, 0]
    assert [second.values[name] for name in names] == [0, 100, 0], "the slowdown has a known cause"


def test_without_a_counter_of_energy_the_power_of_now(query: CardQuery, driver: Driver) -> None:
    driver.says({"uuid": "GPU-aa1", "fails": {"TotalEnergyConsumption": "NotSupported"}})
    (card,) = answer(query)
    assert card.values["power"] == 305.5


def test_the_parts_of_a_card_have_their_memory_and_its_temperature(query: CardQuery, driver: Driver) -> None:
    part = {"uuid": "MIG-1", "total": 10 * GB, "free": 4 * GB, "fails": {"UtilizationRates": "NotSupported"}}
    driver.says({"uuid": "GPU-aa1", "mig": [part, None]})
    (card,) = answer(query)
    assert (card.id, card.total_mb, card.values["memory_mb"]) == ("MIG-1", 10 * 1024, 6 * 1024)
    assert card.values["temperature"] == 61 and "power" not in card.values, "it is of all parts together"


def test_a_card_that_does_not_answer_hides_no_other(query: CardQuery, driver: Driver) -> None:
    driver.says({"uuid": "GPU-aa1"}, {"uuid": "GPU-bb2"})
    answer(query)
    driver.says({"uuid": "GPU-aa1", "fails": {"MemoryInfo": "GpuIsLost"}}, {"uuid": "GPU-bb2"})
    first, second = wait_for(lambda: found if (found := query.poll()) and found[0].error else None) or []
    assert first.values == {} and second.values["temperature"] == 61


def test_a_driver_that_hangs_is_killed_and_asked_again(
    query: CardQuery, driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(card_query, "_ANSWER_SECONDS", 0.5)
    held = tmp_path / "held"
    held.touch()
    driver.says({"uuid": "GPU-aa1"})  # as later: a card that vanishes within a sample ends the process
    answer(query)
    driver.says({"uuid": "GPU-aa1"}, hangs={"Count": str(held)})
    (pid,) = query.pids
    wait_for(lambda: query.poll() is None and query.trouble)
    assert query.trouble == NO_ANSWER
    assert os.waitpid(pid, 0) == (pid, signal.SIGKILL)
    held.unlink()
    assert [card.id for card in answer(query)] == ["GPU-aa1"] and query.trouble == ""


def test_a_process_that_ends_is_replaced(query: CardQuery, driver: Driver) -> None:
    driver.says({"uuid": "GPU-aa1"}, ends={"Count": "no JSON\n"})
    wait_for(lambda: query.poll() is None and query.trouble == NOT_ASKED)
    ended = query.pids
    driver.says({"uuid": "GPU-aa1"})
    assert answer(query)
    for pid in {*ended} - {*query.pids}:
        os.waitpid(pid, 0)


def test_without_a_driver_no_process_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(card_query, "_DRIVER_FILES", ("/nowhere",))
    assert not CardQuery({}).is_needed and not CardQuery({"ROOST_DEVICES": "cpu"}).is_needed
    assert CardQuery({"ROOST_DEVICES": "sim:1x24GB"}).is_needed
    monkeypatch.setattr(card_query, "_DRIVER_FILES", (os.devnull,))
    assert CardQuery({}).is_needed and not CardQuery({"ROOST_DEVICES": "cpu"}).is_needed
