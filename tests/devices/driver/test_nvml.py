"""Asking a driver by a child, which may hang, end or talk nonsense: all of that for real."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from roost.base.errors import Refused
from roost.base.system.process_identity import read_stat
from roost.devices.card import Card
from roost.devices.driver import nvml
from roost.devices.driver.nvml import DriverClient
from tests.devices.nvidia import TWO, Driver
from tests.messages import Messages
from tests.waiting import wait_for

PATIENT_SECONDS = 30.0
"""For tests of what answers."""


def troubles(watcher: DriverClient) -> list[str]:
    return [card.trouble for card in watcher.cards()]


def wait_until_well(watcher: DriverClient) -> None:
    wait_for(lambda: not any(troubles(watcher)))


def test_one_child_answers_again_and_again(driver: Driver) -> None:
    with DriverClient(timeout_seconds=PATIENT_SECONDS) as watcher:
        assert watcher.pid is None
        first, pid = watcher.cards(), watcher.pid
        driver.says(*TWO, {"uuid": "GPU-cc3"})
        assert (len(first), len(watcher.cards()), watcher.pid) == (2, 3, pid)
    assert pid is not None and read_stat(pid) is None and watcher.pid is None
    assert driver.calls("Init") == 1


def test_a_child_that_hangs_is_killed_and_the_cards_stay_known(driver: Driver, messages: Messages) -> None:
    """F36: stopped by a signal, it hangs as a driver does."""
    with DriverClient(timeout_seconds=0.5) as watcher:
        known, pid = watcher.cards(), watcher.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        found = watcher.cards()
        assert read_stat(pid) is None and watcher.pid is None
        (trouble,) = {card.trouble for card in found}
        assert "0.5 s" in trouble
        messages.check(trouble)
        assert [(card.id, card.total_mb) for card in found] == [(card.id, card.total_mb) for card in known]
        wait_until_well(watcher)
        assert watcher.pid not in (None, pid)


def test_a_driver_that_has_never_answered(
    driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    held = tmp_path / "held"
    held.touch()
    driver.says(*TWO, hangs={"Init": str(held)})
    monkeypatch.setattr(nvml, "FIRST_ANSWER_SECONDS", 0.3)
    with DriverClient(timeout_seconds=0.1) as watcher:
        with pytest.raises(Refused) as refused:
            watcher.cards()
        assert all(fact in str(refused.value) for fact in ("0.3 s", "nvidia-smi"))
        messages.check(refused.value)
        assert watcher.pid is None


def test_a_driver_that_is_being_opened_is_not_waited_for(
    driver: Driver, tmp_path: Path, messages: Messages
) -> None:
    """Where the cards are known; and the child that opens it is left to it."""
    held = tmp_path / "held"
    held.touch()
    with DriverClient(timeout_seconds=0.5) as watcher:
        watcher.cards()
        driver.says(*TWO, hangs={"Init": str(held)})
        watcher.close()
        (trouble,) = set(troubles(watcher))
        messages.check(trouble)
        pid = watcher.pid
        assert set(troubles(watcher)) == {trouble}
        held.unlink()
        wait_until_well(watcher)
        assert watcher.pid == pid


def test_a_child_that_ends(driver: Driver, messages: Messages) -> None:
    with DriverClient(timeout_seconds=PATIENT_SECONDS) as watcher:
        watcher.cards()
        assert watcher.pid is not None
        os.kill(watcher.pid, signal.SIGKILL)
        (trouble,) = set(troubles(watcher))
        assert "SIGKILL" in trouble
        messages.check(trouble)
        wait_until_well(watcher)


@pytest.mark.parametrize(
    ("prints", "says"),
    [
        ("", r"\b9\b"),
        ("NVIDIA-SMI has failed", r"\b9\b"),
        ("NVIDIA-SMI has failed\n", "JSON is malformed"),
        ("x" * (5 * 2**20), "4 MiB"),
    ],
    ids=["nothing", "half a line", "garbage", "a flood"],
)
def test_nonsense(prints: str, says: str, driver: Driver, messages: Messages) -> None:
    driver.says(*TWO, ends={"Count": prints})
    with DriverClient(timeout_seconds=PATIENT_SECONDS) as watcher:
        with pytest.raises(Refused, match=says) as refused:
            watcher.cards()
        messages.check(refused.value)
        driver.says(*TWO)
        assert troubles(watcher) == ["", ""]


def test_a_driver_that_fails_as_a_whole(driver: Driver) -> None:
    with DriverClient(timeout_seconds=PATIENT_SECONDS) as watcher:
        watcher.cards()
        driver.says(*TWO, fails={"Count": "LibRmVersionMismatch"})
        assert set(troubles(watcher)) == {"RM has detected an NVML/RM version mismatch."}


def test_a_card_that_fails_alone(driver: Driver) -> None:
    driver.says(TWO[0], {"uuid": "GPU-bb2", "fails": {"MemoryInfo": "GpuIsLost"}})
    with DriverClient(timeout_seconds=PATIENT_SECONDS) as watcher:
        well, lost = watcher.cards()
    assert (well.id, well.trouble) == ("GPU-aa1", "")
    assert lost.id == "GPU-bb2" and lost.trouble.endswith(": GPU is lost")


def test_a_child_that_cannot_be_killed_is_the_last(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    """No test can bring a process into the hands of a driver that hangs: that it is not gone is said here."""
    with DriverClient(timeout_seconds=PATIENT_SECONDS) as watcher:
        watcher.cards()
        watcher.close()
        with monkeypatch.context() as patch:
            patch.setattr(nvml._QueryProcess, "has_ended", lambda child: False)
            (trouble,) = set(troubles(watcher))
            messages.check(trouble)
            assert watcher.pid is None
        wait_until_well(watcher)


def test_a_machine_without_a_driver_has_none(driver: Driver) -> None:
    driver.says(fails={"Init": "LibraryNotFound"})
    with DriverClient(timeout_seconds=PATIENT_SECONDS) as watcher:
        assert watcher.cards() == []


def test_without_the_library(driver: Driver, monkeypatch: pytest.MonkeyPatch, messages: Messages) -> None:
    monkeypatch.setattr("sys.path", [])
    with (
        DriverClient() as watcher,
        pytest.raises(Refused, match="pip install nvidia-ml") as refused,
    ):
        watcher.cards()
    messages.check(refused.value)


def test_what_is_known_is_given_as_it_is_now(driver: Driver) -> None:
    with DriverClient(timeout_seconds=PATIENT_SECONDS) as watcher:
        watcher.cards()
        driver.says({"uuid": "GPU-aa1", "free": 2**30})
        assert watcher.cards() == [
            Card(0, "GPU-aa1", "NVIDIA H100", 81920, 1024, (), utilization=97, temperature=61, power=305.5)
        ]
