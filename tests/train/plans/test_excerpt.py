from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from roost.train.plans.excerpt import Excerpt
from roost.train.plans.plan import BatchPlan
from tests.train.plans.laws import few, hold


@few
@given(st.sets(st.integers(0, 8), min_size=1))
def test_only_these_batches(numbers: set[int]) -> None:
    whole = BatchPlan(35, 4, seed=3)
    excerpt = Excerpt(whole, tuple(range(number, number + 1) for number in sorted(numbers)))
    hold(lambda: excerpt)
    batches = list(whole.batches(2))
    assert list(excerpt.batches(2)) == [batches[number] for number in sorted(numbers)]


def test_in_words() -> None:
    plan = Excerpt(BatchPlan(8, 4), (range(1),))
    assert plan.in_words() == "1 batches of: shuffled, 4 samples a batch, 2 batches an epoch"
    assert plan.num_samples == 8
