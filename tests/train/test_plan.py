from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roost.base.errors import ConfigError
from roost.train.plan import BatchPlan

PLANS = st.builds(
    dict,
    num_samples=st.integers(1, 60),
    batch_size=st.integers(1, 12),
    seed=st.integers(0, 2**63 - 1),
    shuffle=st.booleans(),
)


@settings(deadline=None)
@given(PLANS, st.integers(0, 5), st.integers(1, 4))
def test_every_index_once_over_all_ranks(given_: dict[str, int], epoch: int, world: int) -> None:
    ranks = [BatchPlan(**given_, rank=rank, world=world) for rank in range(world)]
    found = [index for plan in ranks for batch in plan.batches(epoch) for index in batch]
    assert sorted(found) == list(range(given_["num_samples"]))


@settings(deadline=None)
@given(PLANS, st.integers(0, 5), st.integers(0, 60))
def test_from_any_start_on_it_is_the_rest(given_: dict[str, int], epoch: int, start: int) -> None:
    plan = BatchPlan(**given_)
    assert list(plan.batches(epoch, start)) == list(plan.batches(epoch))[start:]


@settings(deadline=None)
@given(PLANS, st.integers(0, 5), st.integers(1, 4))
def test_ranks_together_take_the_samples_in_the_order_of_one(
    given_: dict[str, int], epoch: int, world: int
) -> None:
    """And step by step: the n-th batches of all ranks are what one process would take in its n-th step with
    a batch as large as all of theirs."""
    size = given_["batch_size"]
    one = BatchPlan(**{**given_, "batch_size": size * world})
    ranks = [list(BatchPlan(**given_, rank=rank, world=world).batches(epoch)) for rank in range(world)]
    assert [list(itertools.chain(*parts)) for parts in zip(*ranks, strict=True)] == list(one.batches(epoch))


@settings(deadline=None)
@given(PLANS, st.integers(1, 4), st.booleans())
def test_sizes_are_known_beforehand(given_: dict[str, int], world: int, drop_last: bool) -> None:
    if drop_last and given_["num_samples"] < given_["batch_size"] * world:
        with pytest.raises(ConfigError, match="which is not one batch"):
            BatchPlan(**given_, world=world, drop_last=True)
        return
    for rank in range(world):
        plan = BatchPlan(**given_, rank=rank, world=world, drop_last=drop_last)
        sizes = [len(batch) for batch in plan.batches(0)]
        assert sizes == [plan.size(number) for number in range(plan.num_batches)]
        if drop_last:
            assert set(sizes) == {given_["batch_size"]}


def test_epochs_and_seeds_differ_and_repeat() -> None:
    plan, other = BatchPlan(50, 7, seed=1), BatchPlan(50, 7, seed=2)
    assert list(plan.batches(0)) == list(BatchPlan(50, 7, seed=1).batches(0))
    assert list(plan.batches(0)) != list(plan.batches(1))
    assert list(plan.batches(0)) != list(other.batches(0))
    unshuffled = BatchPlan(5, 2, shuffle=False)
    assert list(unshuffled.batches(0)) == list(unshuffled.batches(3)) == [[0, 1], [2, 3], [4]]


def test_the_order_stays_what_it_is() -> None:
    """Another one would make every continued run inexact after an update of roost or NumPy."""
    assert BatchPlan(8, 8, seed=3).order(1).tolist() == [2, 1, 4, 3, 5, 6, 0, 7]


def test_what_cannot_be_planned() -> None:
    with pytest.raises(ConfigError, match="the dataset is empty"):
        BatchPlan(0, 4)
    with pytest.raises(ConfigError, match=r"data.batch_size: the dataset has 3 samples.*received 4"):
        BatchPlan(3, 4, drop_last=True)
