from __future__ import annotations

import torch

from roost.train import seeding
from roost.train.rank_state import RankState
from tests.train.parts import MLP, Points, bits, built, plain


def state() -> RankState:
    return RankState(plain(built(MLP), Points()))


def test_loading_only_remembers_and_restore_comes_last() -> None:
    rank, other = state(), state()
    seeding.seed_all(1)
    saved = other.state_dict()
    torch.rand(3)
    moved = bits(seeding.rng_state())
    rank.load_state_dict(saved)
    assert bits(seeding.rng_state()) == moved
    assert rank.restore() == []
    assert bits(seeding.rng_state()) == bits(saved["rng"])


def test_what_cannot_be_restored_is_told() -> None:
    saved = state().state_dict()
    rank = state()
    rank.load_state_dict({"rng": {**saved["rng"], "cuda": [torch.zeros(16, dtype=torch.uint8)] * 9}})
    (reason,) = rank.restore()
    assert reason.startswith("the state of the CUDA generator could not be restored: ")


def test_restoring_nothing_changes_nothing() -> None:
    rank = state()
    before = bits(seeding.rng_state())
    assert rank.restore() == []
    assert bits(seeding.rng_state()) == before
