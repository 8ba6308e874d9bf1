"""The card as torch, the driver and roost know it."""

from __future__ import annotations

import os

import pytest
import torch

from roost.devices import visible_cards
from roost.package.resume import environment
from roost.train.accelerators.registry import accelerator_of
from roost.worker import card_memory

pytestmark = pytest.mark.needs_gpu
MB = 2**20


def test_the_driver_and_torch_mean_the_same_cards() -> None:
    """In the same order only where CUDA is told to count as the driver does; by their UUIDs always."""
    cuda, cards = accelerator_of("cuda"), {card.id: card for card in visible_cards.cards()}
    for index, found in enumerate(cuda.properties()):
        uuid = cuda.uuid(index)
        assert uuid and uuid == found["uuid"]
        if f"GPU-{uuid}" not in cards:
            pytest.skip(f"torch reports {uuid}, the driver {', '.join(cards)}: a MIG instance")
        card = cards[f"GPU-{uuid}"]
        assert card.name == found["name"] and abs(card.total_mb - found["memory_mb"]) < 0.05 * card.total_mb


def test_the_driver_knows_what_this_process_takes() -> None:
    """By its pid, or in a container as the only user of the card."""
    held = torch.ones(512 * MB, dtype=torch.uint8, device="cuda")
    driver_mb = card_memory._driver_mb(torch.cuda.current_device())
    users = card_memory._card_of(0, accelerator_of("cuda").uuid(0)).users
    del held
    if driver_mb is None:
        assert os.getpid() not in [user.pid for user in users] and len(users) != 1
        pytest.skip(f"the driver knows {len(users)} processes of the card, and not this one by its pid")
    assert 50 < driver_mb < 2_000


def test_the_libraries_that_decide_on_bits_are_recorded() -> None:
    found = environment.stack("cuda", accelerator_of("cuda"))
    assert found["device_name"] == torch.cuda.get_device_name() and found["cudnn"]
    if torch.version.hip is None:
        assert found["cuda"] == torch.version.cuda and found["cublas"].startswith(found["cuda"].split(".")[0])
    else:
        assert found["hip"] == torch.version.hip
    assert found["nccl"].count(".") >= 2
    assert isinstance(found["allow_bf16_reduced_precision_reduction"], bool)


def test_generators_are_read_without_a_context_on_their_device() -> None:
    torch.cuda.init()
    cuda = accelerator_of("cuda")
    generators = cuda.generators()
    assert len(generators) == torch.cuda.device_count()
    assert cuda.generator() is generators[torch.cuda.current_device()]
    before = generators[0].get_state()
    expected = torch.rand(3, device="cuda:0").tolist()
    generators[0].set_state(before)
    assert torch.rand(3, device="cuda:0").tolist() == expected
