from __future__ import annotations

from roost.train.plans.plan import BatchPlan, Draw
from roost.train.plans.shares import Shared
from tests.train.plans.laws import hold

# That all ranks together take the batches of one is a law of every plan (laws.py).


def test_it_is_a_plan_itself() -> None:
    hold(lambda: Shared(BatchPlan(20, 5, seed=1), 1, 2))


def test_where_there_are_fewer_samples_than_ranks_some_get_none() -> None:
    shares = [Shared(BatchPlan(4, 3, shuffle=False), rank, 2) for rank in range(2)]
    assert [list(share.batches(5)) for share in shares] == [
        [Draw([0], 5), Draw([], 5)],
        [Draw([1, 2], 5), Draw([3], 5)],
    ]
    assert [(share.num_samples, share.num_batches) for share in shares] == [(4, 2)] * 2


def test_in_words() -> None:
    share = Shared(BatchPlan(4, 4), 1, 2)
    assert share.in_words() == "share 2 of 2 of: shuffled, 4 samples a batch, 1 batch an epoch"
