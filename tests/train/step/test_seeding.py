from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from roost.base import state_tree
from roost.train.accelerators.registry import accelerator_of
from roost.train.step import seeding
from tests.messages import Messages
from tests.train.parts import bits


def draw() -> tuple[float, float, float, float, float]:
    """One number of each generator; two normal ones of Python, which keeps the second for later."""
    return (
        float(torch.rand(())),
        float(np.random.rand()),
        random.random(),
        random.gauss(0, 1),
        float(np.random.standard_normal()),
    )


def test_mix_stays_what_it_is() -> None:
    """Another value would give every run another order of data after an update of roost."""
    assert seeding.mix(0) == 7795324965117060851
    assert seeding.mix(3, "order", 7) == 5730778086632496746
    assert seeding.mix(2**70, -1) == seeding.mix(2**70 % 2**64, 2**64 - 1)


@settings(deadline=None)
@given(st.lists(st.integers(0, 2**63), min_size=1, max_size=3), st.integers(0, 2), st.integers(0, 63))
def test_each_bit_of_each_part_counts(parts: list[int], place: int, bit: int) -> None:
    other = list(parts)
    other[place % len(parts)] ^= 1 << bit
    ours, theirs = seeding.mix(*parts), seeding.mix(*other)
    assert 0 <= ours < 2**63
    assert ours != theirs
    assert 5 < (ours ^ theirs).bit_count() < 58, "neighbours are far apart"


def test_order_and_kind_of_parts_count() -> None:
    seeds = [seeding.mix(*parts) for parts in [(1, 2), (2, 1), (1,), (1, 2, 0), ("1", 2), (1, "a"), (1, "b")]]
    assert len(set(seeds)) == len(seeds)


def test_seed_all_and_seed_sample_seed_all_three() -> None:
    seeds = (seeding.seed_all, seeding.seed_batch, lambda n: seeding.seed_sample(n, 1, 2))
    for seed in seeds:
        seed(5)
        first = draw()
        seed(5)
        assert draw() == first
        seed(6)
        assert not set(draw()) & set(first)
    seeding.seed_all(2**63 - 1)
    ahead = draw()
    seeding.seed_batch(2**63 - 1)
    assert draw() == ahead


def test_a_sample_s_seed_depends_on_epoch_and_index() -> None:
    drawn = set()
    for epoch, index in ((0, 0), (0, 1), (1, 0), (1, 1)):
        seeding.seed_sample(0, epoch, index)
        drawn.add(draw())
    assert len(drawn) == 4


@pytest.mark.parametrize("draws", [0, 1, 3])
def test_the_state_survives_the_codec(draws: int) -> None:
    seeding.seed_all(4)
    for _ in range(draws):
        draw()
    random.gauss(0, 1)  # leaves a second number waiting
    np.random.standard_normal()
    skeleton, leaves = state_tree.pack(seeding.rng_state())
    expected = [draw() for _ in range(3)]
    seeding.set_rng_state(state_tree.unpack(skeleton, leaves))
    assert [draw() for _ in range(3)] == expected


def test_a_device_state_that_cannot_be_restored_is_reported(
    monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    state = seeding.rng_state()
    assert seeding.set_rng_state(state) == []
    foreign = {**state, "cuda": [torch.zeros(16, dtype=torch.uint8)]}
    cuda = accelerator_of("cuda")
    if not cuda.is_initialized():
        (not_in_use,) = seeding.set_rng_state(foreign)
        assert "CUDA" in not_in_use
    monkeypatch.setattr(cuda, "is_initialized", lambda: True)
    (of_others,) = seeding.set_rng_state({**state, "cuda": foreign["cuda"] * 8})
    assert "CUDA" in of_others and "8" in of_others
    messages.check(of_others)

    class Refusing:
        def set_state(self, _: object) -> None:
            raise RuntimeError("RNG state is wrong size\nat …")

    monkeypatch.setattr(cuda, "generator", Refusing)
    torch.rand(3)
    (refused,) = seeding.set_rng_state(foreign)
    assert "CUDA" in refused and refused.endswith("RNG state is wrong size")
    messages.check(refused)
    assert bits(seeding.rng_state(devices=False)) == bits({**state, "cuda": [], "mps": []}), "the CPU's is"


@pytest.mark.needs_gpu
def test_the_current_cuda_device_is_saved_and_restored() -> None:
    torch.cuda.init()
    state = seeding.rng_state()
    expected = torch.rand(3, device="cuda").tolist()
    assert len(state["cuda"]) == 1 and seeding.set_rng_state(state) == []
    assert torch.rand(3, device="cuda").tolist() == expected
    before = bits(seeding.rng_state())
    with seeding.isolated(7):
        torch.rand(3, device="cuda")
    assert bits(seeding.rng_state()) == before


def test_isolated_for_fetching_asks_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_initialized", lambda: True)
    monkeypatch.setattr(accelerator_of("cuda"), "generators", lambda: pytest.fail("asked"))
    seeding._seed_cpu(3)
    expected = draw()
    seeding._seed_cpu(1)
    before = bits(seeding.rng_state(devices=False))
    with seeding.isolated(3, devices=False):
        assert draw() == expected
    assert bits(seeding.rng_state(devices=False)) == before


def test_isolated_queues_no_seed_for_devices_that_are_not_in_use() -> None:
    """A run on the CPU has thousands of validations; torch's seed for all devices keeps a stack in each."""
    before = len(torch.xpu._queued_calls), len(torch.mtia._queued_calls)
    with seeding.isolated(7):
        draw()
    assert (len(torch.xpu._queued_calls), len(torch.mtia._queued_calls)) == before


def test_isolated_leaves_no_trace_also_after_an_error() -> None:
    seeding.seed_all(1)
    before = bits(seeding.rng_state())
    with seeding.isolated(7):
        inside = draw()
    with pytest.raises(KeyError), seeding.isolated(7):
        assert draw() == inside
        raise KeyError
    with seeding.isolated():
        seeding.seed_all(9)
    assert bits(seeding.rng_state()) == before
