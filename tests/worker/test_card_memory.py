"""A worker keeps to the memory reserved on a card, and reports what it used."""

from __future__ import annotations

import os

import pytest
import torch

from roost.base.errors import Refused
from roost.devices import visible_cards
from roost.devices.card import Card, CardProcess
from roost.train.model import peak_gpu_memory, simulated_memory
from roost.train.model.simulated_memory import SimulatedUsage, usage
from roost.worker import card_memory
from tests.train.fake_cuda import FakeCuda


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    """Two cards; the driver's part is unknown until a test says which processes use them."""
    fake = FakeCuda(2)
    fake.put_in_place(monkeypatch)
    monkeypatch.setattr(peak_gpu_memory, "_earlier_peaks", {})
    monkeypatch.delenv("ROOST_DEVICES", raising=False)
    users(monkeypatch)
    return fake


def users(patch: pytest.MonkeyPatch, *found: CardProcess) -> None:
    cards = [Card(number, f"GPU-{number}", "test", 10_240, 9_000, found) for number in range(2)]
    patch.setattr(visible_cards, "cards", lambda: cards)


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in vars(SimulatedUsage()).items():
        monkeypatch.setattr(usage, name, value)
    monkeypatch.setenv("ROOST_DEVICES", "sim:1x8GB")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "SIM-0")


def test_the_driver_has_its_part_of_the_promise_but_never_more_than_half() -> None:
    assert card_memory.tensor_fraction(5_000, driver_mb=500, total_mb=10_000) == 0.45
    assert card_memory.tensor_fraction(600, driver_mb=500, total_mb=10_000) == 0.03
    assert card_memory.tensor_fraction(20_000, driver_mb=500, total_mb=10_000) == 1.0


def test_torch_is_held_to_the_promise(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    card_memory.limit_to_reservation(None, "cuda", is_rank=False)
    card_memory.limit_to_reservation(5_000, "cpu", is_rank=False)
    assert cuda.fractions == {}
    card_memory.limit_to_reservation(5_000, "cuda:1", is_rank=True)
    assert cuda.fractions == {1: 0.44}  # 600 MB for the driver, as the driver reports nothing
    users(monkeypatch, CardProcess(os.getpid(), "ada", 500), CardProcess(1, "ada", 3_000))
    card_memory.limit_to_reservation(5_000, "cuda", is_rank=False)
    assert cuda.fractions == {0: 0.45, 1: 0.45}


def test_of_unlike_cards_torch_may_count_another_one_first(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CUDA counts the fastest first, the driver by the bus."""
    own, other = CardProcess(os.getpid(), "ada", 500), CardProcess(os.getpid(), "ada", 900)
    cards = [
        Card(0, "GPU-aa", "old", 10_240, 9_000, (other,)),
        Card(1, "GPU-bb", "new", 10_240, 9_000, (own,)),
    ]
    monkeypatch.setattr(visible_cards, "cards", lambda: cards)
    cuda.uuids = ["bb", "aa"]
    card_memory.limit_to_reservation(5_000, "cuda", is_rank=False)
    assert cuda.fractions == {0: 0.45, 1: 0.41}


@pytest.mark.parametrize(
    ("found", "driver"),
    [
        ([CardProcess(1, None, 2_450)], 450.0),  # in a container
        ([CardProcess(os.getpid(), "ada", 2_300), CardProcess(1, "ada", 900)], 300.0),
        ([CardProcess(1, "ada", 2_450), CardProcess(2, "ada", 2_450)], None),
        ([CardProcess(os.getpid(), "ada", None)], None),
        ([], None),
    ],
)
def test_the_most_used_card_is_reported(
    cuda: FakeCuda, found: list[CardProcess], driver: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert card_memory.usage() is None, "nothing was taken"
    cuda.reserved, cuda.allocated, cuda.ooms, cuda.free_mb = [100.0, 2_000.0], [90.0, 1_500.0], 2, 4_000.0
    users(monkeypatch, *found)
    error = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.50 GiB. GPU 1 has …")
    assert card_memory.usage(error) == {
        "peak_mb": 2_000.0,
        "allocated_mb": 1_500.0,
        "driver_mb": driver,
        "others_mb": 4_000.0 - (driver or 600.0),
        "ooms": 2,
        "asked_mb": 1_536.0,
    }


def test_unknown_usage_hides_no_error(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse() -> list[Card]:
        raise Refused("the driver does not tell")

    cuda.reserved[0] = 2_000.0
    monkeypatch.setattr(visible_cards, "cards", refuse)
    usage = card_memory.usage()
    assert usage is not None and usage["driver_mb"] is None
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda index: 1 / 0)
    assert card_memory.usage() is None and "ZeroDivisionError" in capsys.readouterr().out


def test_a_simulated_card_is_limited_and_reported_alike(simulated: None) -> None:
    assert card_memory.usage() is None
    card_memory.limit_to_reservation(3_000, "cpu", is_rank=False)
    simulated_memory.allocate(2_600)
    with pytest.raises(torch.OutOfMemoryError) as caught:
        simulated_memory.allocate(1)
    assert card_memory.usage(caught.value) == {
        "peak_mb": 2_600,
        "allocated_mb": 2_600,
        "driver_mb": 400.0,
        "others_mb": 0,
        "ooms": 1,
        "asked_mb": 1.0,
    }
