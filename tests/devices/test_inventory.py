"""Who provides the cards."""

from __future__ import annotations

from pathlib import Path

import pytest

from roost.base.errors import Refused, UsageError
from roost.devices.inventory import excludes_real_cards, is_simulated, open_inventory, read_cards
from tests.devices.nvidia import TWO, Driver
from tests.messages import Messages


def ids(devices: str | None) -> list[str]:
    return [card.id for card in read_cards({"ROOST_DEVICES": devices} if devices is not None else {})]


@pytest.mark.parametrize("devices", [None, "", "nvml"], ids=repr)
def test_the_driver_is_asked(devices: str | None, driver: Driver) -> None:
    assert ids(devices) == ["GPU-aa1", "GPU-bb2"]


def test_the_driver_as_it_is_here() -> None:
    """With its own library: none, where no driver is loaded."""
    assert all(card.total_mb >= 0 and card.id for card in read_cards({}))


def test_the_driver_is_not_queried_for_cpu(driver: Driver) -> None:
    driver.says(*TWO, ends={"Init": ""})
    assert ids("cpu") == []


def test_cards_that_are_not_there(driver: Driver, tmp_path: Path) -> None:
    driver.says(*TWO, ends={"Init": ""})
    assert ids("sim:2x24GB") == ["SIM-0", "SIM-1"]
    file = tmp_path / "lab.json"
    file.write_text('{"cards": "1x24GB", "failures": [{"card": "SIM-0", "end": 1}]}')
    (card,) = read_cards({"ROOST_DEVICES": f"sim:{file}"})
    assert card.trouble == ""  # times are Unix seconds, and now is later


@pytest.mark.parametrize("devices", ["NVML", "cuda", "sim", "4x24GB", "sim:", "sim:4"])
def test_an_unknown_source_of_devices(devices: str, messages: Messages) -> None:
    with pytest.raises(UsageError, match="4x24GB") as refused:
        ids(devices)
    assert refused.value.setting == "ROOST_DEVICES"
    messages.check(refused.value)


def test_one_child_for_who_asks_again_and_again(driver: Driver) -> None:
    with open_inventory({}, timeout_seconds=30.0) as ask:
        assert [card.id for card in ask()] == ["GPU-aa1", "GPU-bb2"]
        driver.says({"uuid": "GPU-cc3"})
        assert [card.id for card in ask()] == ["GPU-cc3"]
    assert driver.calls("Init") == 1


def test_a_driver_that_fails_is_said_once_it_is_asked(driver: Driver, messages: Messages) -> None:
    driver.says(fails={"Init": "Unknown"})
    with (
        open_inventory({}) as ask,
        pytest.raises(Refused, match="Unknown Error") as refused,
    ):
        ask()
    messages.check(refused.value)


def test_what_is_simulated() -> None:
    assert is_simulated({"ROOST_DEVICES": "sim:4x24GB"})
    assert not any(is_simulated(one) for one in ({}, {"ROOST_DEVICES": "nvml"}, {"ROOST_DEVICES": "cpu"}))


def test_on_which_nothing_can_compute() -> None:
    assert all(excludes_real_cards({"ROOST_DEVICES": one}) for one in ("sim:4x24GB", "cpu"))
    assert not any(excludes_real_cards(one) for one in ({}, {"ROOST_DEVICES": ""}, {"ROOST_DEVICES": "nvml"}))
