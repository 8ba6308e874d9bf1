"""Memory of a simulated card, acted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from roost.base.errors import UsageError
from roost.train.model import simulated_memory
from roost.train.model.simulated_memory import SimulatedUsage, usage
from tests.messages import Messages


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has taken nothing yet, on the second of two cards."""
    for name, value in vars(SimulatedUsage()).items():
        monkeypatch.setattr(usage, name, value)
    monkeypatch.setenv("ROOST_DEVICES", "sim:2x8GB")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "SIM-1")


def test_it_counts_what_is_taken_and_given_back() -> None:
    simulated_memory.allocate(1_000)
    simulated_memory.allocate(2_000)
    simulated_memory.release(2_500)
    simulated_memory.allocate(100)
    assert (usage.now_mb, usage.peak_mb, usage.ooms) == (600, 3_000, 0)


def test_no_process_gets_more_than_its_limit_or_the_card() -> None:
    simulated_memory.set_limit(3_000)
    simulated_memory.allocate(2_000)
    with pytest.raises(torch.OutOfMemoryError, match=r"Tried to allocate 1001\.00 MiB"):
        simulated_memory.allocate(1_001)
    assert (usage.now_mb, usage.peak_mb, usage.ooms) == (2_000, 2_000, 1)
    simulated_memory.set_limit(1e9)
    simulated_memory.allocate(8 * 1024 - 400 - 2_000)
    with pytest.raises(torch.OutOfMemoryError):
        simulated_memory.allocate(1)


def test_what_others_have_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = tmp_path / "scenario.json"
    process = {"card": "SIM-1", "pid": 1, "memory": "6GB"}
    scenario.write_text(json.dumps({"cards": "2x8GB", "processes": [process]}))
    monkeypatch.setenv("ROOST_DEVICES", f"sim:{scenario}")
    assert simulated_memory.used_by_others_mb() == 6 * 1024
    with pytest.raises(torch.OutOfMemoryError):
        simulated_memory.allocate(2_000)


def test_each_rank_has_its_own_card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "SIM-1,SIM-0")
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert simulated_memory.card_id() == "SIM-0"


@pytest.mark.parametrize(
    ("devices", "visible"), [("cpu", "SIM-1"), ("sim:1x8GB", ""), ("sim:1x8GB", "SIM-1")]
)
def test_without_a_simulated_card(
    devices: str, visible: str, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    monkeypatch.setenv("ROOST_DEVICES", devices)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with pytest.raises(UsageError) as refused:
        simulated_memory.allocate(1)
    messages.check(refused.value)
