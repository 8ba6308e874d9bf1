from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import torch

from roost.train.checkpointing.rank_state import RankState
from roost.train.distributed.ranks import ALONE, Ranks
from roost.train.hooks import Save
from roost.train.step import seeding
from tests.train.parts import bits
from tests.train.team import silent, team
from tests.train.test_trainer_ranks import made


def state() -> RankState:
    return RankState()


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


def test_generators_that_cannot_be_restored_are_reported() -> None:
    saved = state().state_dict()
    rank = state()
    rank.load_state_dict({"rng": {**saved["rng"], "cuda": [torch.zeros(16, dtype=torch.uint8)] * 9}})
    (reason,) = rank.restore()
    assert "CUDA" in reason


def test_restoring_nothing_changes_nothing() -> None:
    rank = state()
    before = bits(seeding.rng_state())
    assert rank.restore() == []
    assert bits(seeding.rng_state()) == before


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2)])
def test_a_run_goes_back_to_a_checkpoint_of_other_ranks(tmp_path: Path, before: int, after: int) -> None:
    """The open window of all is rank 0's, once. A rank that was not there draws numbers of its own, or those
    of rank 0."""

    def saves(ranks: Ranks) -> dict[str, float]:
        trainer = made(ranks if ranks.are_several else ALONE, Save("4"), until=4, folder=tmp_path)
        with silent():
            trainer.fit()
        return trainer.events.peek()

    def goes_back(ranks: Ranks, draws_alone: bool) -> Any:
        trainer = made(ranks if ranks.are_several else ALONE, until=8, folder=tmp_path)
        trainer.has_own_seed = draws_alone and not ranks.is_main
        with silent():
            trainer._roll_back(6)
        return bool(trainer.events), trainer.events.peek(), torch.rand(()).item()

    expected = team(before, saves)[0]
    for draws_alone in (True, False):
        every = team(after, functools.partial(goes_back, draws_alone=draws_alone))
        windows, rows, drawn = zip(*every, strict=True)
        assert windows == (True, False)[:after]
        assert all(row == pytest.approx(expected, rel=1e-12) for row in rows)
        assert len(set(drawn)) == (after if draws_alone else 1)
