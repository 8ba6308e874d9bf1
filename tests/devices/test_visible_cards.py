"""The GPUs that CUDA_VISIBLE_DEVICES leaves. Their driver is a file, the process that asks it is real."""

from __future__ import annotations

import getpass
import importlib.util
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from roost.base.errors import Refused
from roost.devices import visible_cards
from roost.devices.card import Card
from roost.devices.visible_cards import cards, most_free
from tests.devices.nvidia import GB, TWO, Driver
from tests.messages import Messages

PARTED = {"uuid": "GPU-cc3", "mig": [{"uuid": "MIG-1234", "fails": {"Attributes_v2": "NotSupported"}}]}
PARTED["mig"] += [{"uuid": "MIG-5678", "fails": {"Attributes_v2": "NotSupported"}}]


def seen(asked: str | None) -> list[str]:
    found = cards({"CUDA_VISIBLE_DEVICES": asked} if asked is not None else {})
    assert [card.number for card in found] == [*range(len(found))]
    return [card.id for card in found]


def test_a_machine_without_a_driver_has_none() -> None:
    """As it is, where no driver is loaded: the library itself says so."""
    if not torch.cuda.is_available():
        assert cards({}) == []


def test_all_are_visible_by_their_uuids(driver: Driver) -> None:
    assert [(card.id, card.name, card.total_mb, card.free_mb) for card in cards({})] == [
        ("GPU-aa1", "NVIDIA H100", 80 * 1024, 79 * 1024),
        ("GPU-bb2", "NVIDIA H100", 80 * 1024, 3 * 1024),
    ]


@pytest.mark.parametrize(
    ("asked", "ids"),
    [
        ("1", ["GPU-bb2"]),
        ("1, 0", ["GPU-bb2", "GPU-aa1"]),
        ("GPU-bb2,0", ["GPU-bb2", "GPU-aa1"]),
        ("GPU-b", ["GPU-bb2"]),
        ("0,7,1", ["GPU-aa1"]),
        ("0,GPU-,1", ["GPU-aa1"]),
        ("0,MIG-1234", ["GPU-aa1"]),
        ("-1", []),
        ("", []),
    ],
    ids=repr,
)
def test_the_variable_says_which_are_visible(asked: str, ids: list[str], driver: Driver) -> None:
    assert seen(asked) == ids


@pytest.mark.parametrize(
    ("asked", "ids"),
    [
        (None, ["MIG-1234"]),
        ("MIG-5678", ["MIG-5678"]),
        ("MIG-5678,MIG-1234", ["MIG-5678"]),
        ("2", ["MIG-1234"]),
        ("GPU-c,0", ["MIG-1234"]),
        ("0,1", ["GPU-aa1", "GPU-bb2"]),
    ],
    ids=repr,
)
def test_of_the_parts_of_cards_one_is_visible(asked: str | None, ids: list[str], driver: Driver) -> None:
    driver.says(*TWO, PARTED)
    assert seen(asked) == ids


def test_a_whole_name_is_no_beginning() -> None:
    many = {"ROOST_DEVICES": "sim:12x24GB"}
    assert [card.id for card in cards({**many, "CUDA_VISIBLE_DEVICES": "SIM-1,11"})] == ["SIM-1", "SIM-11"]


def test_processes_of_a_card_are_reported(driver: Driver) -> None:
    driver.says({"uuid": "GPU-a", "free": 2 * GB, "running": [[os.getpid(), 70 * GB], [2**22 + 1, None]]})
    (card,) = cards({})
    mine = f"pid {os.getpid()} of {getpass.getuser()}, 70.0 GB"
    said = str(card)
    assert said.startswith("0: NVIDIA H100, ") and mine in said
    assert all(fact in said for fact in ("2.0 GB", "80.0 GB", f"pid {2**22 + 1}"))


def test_what_a_driver_does_not_tell_is_left_out(driver: Driver) -> None:
    lacks = ["MemoryInfo", "ComputeRunningProcesses_v3", "ComputeRunningProcesses_v2"]
    driver.says({"uuid": "GPU-a", "name": "NVIDIA GB10", "fails": dict.fromkeys(lacks, "NotSupported")})
    (card,) = cards({})
    assert str(card) == "0: NVIDIA GB10"


@pytest.mark.parametrize("call", ["Init", "Count"])
def test_a_driver_that_fails(call: str, driver: Driver, messages: Messages) -> None:
    driver.says(*TWO, fails={call: "GpuIsLost"})
    with pytest.raises(Refused, match="GPU is lost") as refused:
        cards({})
    assert "nvidia-smi" in str(refused.value)
    messages.check(refused.value)


def test_a_card_that_has_failed_is_left_out_or_refused(driver: Driver, messages: Messages) -> None:
    driver.says(TWO[0], {"uuid": "GPU-bb2", "fails": {"UUID": "GpuIsLost"}})
    says = "GPU 1 .*GPU is lost.*CUDA_VISIBLE_DEVICES"
    with pytest.raises(Refused, match=says) as refused:
        cards({})
    messages.check(refused.value)
    assert seen("0") == ["GPU-aa1"]


def test_the_freest_are_taken_and_the_first_of_equals() -> None:
    free = [500, 69_700, 70_000, 200, 79_000]
    found = [Card(at, f"GPU-{at}", "H100", 80_000, mb) for at, mb in enumerate(free)]
    assert [[card.number for card in most_free(found, count)] for count in (1, 2, 3)] == [
        [4],
        [1, 4],
        [1, 2, 4],
    ]


def test_torch_is_asked_without_importing_it() -> None:
    assert visible_cards.torch_has_cuda() == (torch.version.cuda is not None)


def test_why_there_is_none(monkeypatch: pytest.MonkeyPatch, messages: Messages) -> None:
    monkeypatch.setattr(visible_cards, "torch_has_cuda", lambda: False)
    messages.check(visible_cards.no_cards_reason({}))
    monkeypatch.setattr(visible_cards, "torch_has_cuda", lambda: True)
    assert visible_cards.no_cards_reason({"CUDA_VISIBLE_DEVICES": "-1"}).startswith("CUDA_VISIBLE_DEVICES ")
    messages.check(visible_cards.no_cards_reason({"CUDA_VISIBLE_DEVICES": "-1"}))
    assert "nvidia-smi" in visible_cards.no_cards_reason({})
    assert visible_cards.no_cards_reason({"ROOST_DEVICES": "sim:1x24GB"}).startswith("ROOST_DEVICES ")
    messages.check(visible_cards.no_cards_reason({"ROOST_DEVICES": "sim:1x24GB"}))


def test_a_torch_for_rocm_is_named_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    (tmp_path / "version.py").write_text("cuda: Optional[str] = None\nhip: Optional[str] = '6.4.43482'\n")
    found = SimpleNamespace(origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: found)
    assert not visible_cards.torch_has_cuda(), "no card of AMD's is leased"
    reason = visible_cards.no_cards_reason({})
    assert "ROCm" in reason and "without" not in reason
    messages.check(reason)


def test_torch_computes_on_no_simulated_card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visible_cards, "torch_has_cuda", lambda: True)
    assert visible_cards.torch_can_compute({}) and not visible_cards.torch_can_compute(
        {"ROOST_DEVICES": "sim:1x24GB"}
    )
    monkeypatch.setattr(visible_cards, "torch_has_cuda", lambda: False)
    assert not visible_cards.torch_can_compute({})
