from __future__ import annotations

from hypothesis import given
from hypothesis.strategies import integers

from roost.train.data.plans.batch_plan import BatchPlan, Draw, PaddingDraw, is_padding, num_samples_of
from roost.train.data.plans.dataset_mixes import CombinedPlan
from roost.train.data.plans.rank_shards import ShardedPlan, shard_slice
from tests.messages import Messages
from tests.train.data.plans.laws import hold

# That all ranks together take the batches of one is a law of every plan (laws.py).


def test_it_is_a_plan_itself() -> None:
    hold(lambda: ShardedPlan(BatchPlan(20, 5, seed=1), 1, 2))


def test_where_there_are_fewer_samples_than_ranks_some_stand_in() -> None:
    shares = [ShardedPlan(BatchPlan(4, 3, shuffle=False), rank, 2) for rank in range(2)]
    assert [list(one.batches(5)) for one in shares] == [
        [Draw([0, 1], 5), Draw([3], 5)],
        [Draw([2], 5), PaddingDraw([3], 5)],
    ]
    assert [num_samples_of(draw) for draw in shares[1].batches(5)] == [1, 0]
    assert [(one.num_samples, one.num_batches) for one in shares] == [(4, 2)] * 2


def test_of_several_sets_a_rank_has_samples_of_each_or_padding() -> None:
    whole = CombinedPlan({"a": BatchPlan(8, 4, shuffle=False), "b": BatchPlan(4, 2, shuffle=False)})
    found = [next(iter(ShardedPlan(whole, rank, 3).batches(0))) for rank in range(3)]
    assert [is_padding(draws) for draws in found] == [False, False, True]
    assert [[one.indices for one in draws.values()] for draws in found[:2]] == [[[0, 1], [0]], [[2, 3], [1]]]


@given(num_samples=integers(0, 50), world=integers(1, 9))
def test_shares_are_as_long_as_each_other(num_samples: int, world: int) -> None:
    runs = [range(num_samples)[shard_slice(num_samples, rank, world)] for rank in range(world)]
    assert [index for run in runs for index in run] == list(range(num_samples))
    lengths = [len(run) for run in runs]
    assert lengths[0] == max(lengths) and max(lengths) - min(lengths) <= 1


def test_describe(messages: Messages) -> None:
    plan = BatchPlan(4, 4)
    words = ShardedPlan(plan, 1, 2).describe()
    assert "2 of 2" in words and words.endswith(plan.describe())
    messages.check(words)
