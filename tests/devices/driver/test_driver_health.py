"""The health of the driver and the cards, asked in the real process, with NVIDIA's library but for its
answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from roost.devices.driver.driver_report import CardHealth, DriverError, DriverHealth
from roost.devices.driver.nvml import read_health
from tests.devices.nvidia import Driver


def test_versions_and_what_slows_a_card_down(driver: Driver) -> None:
    bad = {"uuid": "GPU-b", "ecc": 3, "remapped": [1, 0], "persistence": 0, "lanes": 8, "reasons": 0x24}
    driver.says({"uuid": "GPU-a"}, bad)
    found = read_health()
    assert (found.driver, found.cuda_version) == ("550.54.15", (12, 4))
    good = CardHealth(
        uuid="GPU-a",
        name="NVIDIA H100",
        temperature=61,
        slowdown_temperature=87,
        ecc_errors=0,
        remap_pending=False,
        remap_failed=False,
        persistence=1,
        link_width=16,
        max_link_width=16,
        slowed_by_power=False,
        slowed_by_heat=False,
    )
    assert found.gpus[0] == good
    second = found.gpus[1]
    assert (second.ecc_errors, second.remap_pending, second.persistence, second.link_width) == (3, True, 0, 8)
    assert second.slowed_by_power and second.slowed_by_heat


def test_a_card_that_is_lost_leaves_the_others(driver: Driver) -> None:
    driver.says({"uuid": "GPU-a", "fails": {"HandleByIndex": "GpuIsLost"}}, {"uuid": "GPU-b"})
    first, second = read_health().gpus
    assert "lost" in first.error.lower() and not second.error


def test_no_driver_one_that_fails_and_one_that_hangs(driver: Driver, tmp_path: Path) -> None:
    driver.says(fails={"Init": "LibraryNotFound"})
    assert read_health() == DriverHealth()
    driver.says(fails={"Init": "Unknown"})
    with pytest.raises(DriverError, match=r"(?i)unknown"):
        read_health()
    driver.says(ends={"Count": "no JSON"})
    with pytest.raises(DriverError, match="cannot be read"):
        read_health()
    (tmp_path / "hangs").touch()
    driver.says(hangs={"Count": str(tmp_path / "hangs")})
    with pytest.raises(DriverError, match="within 1 s"):
        read_health(timeout_seconds=1)
