from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from roost.train.data.plans.batch_plan import BatchPlan, Draw
from roost.train.data.plans.plan_excerpt import PlanExcerpt
from tests.messages import Messages
from tests.train.data.plans.laws import few, hold


@few
@given(st.sets(st.integers(0, 8), min_size=1))
def test_only_these_batches(numbers: set[int]) -> None:
    whole = BatchPlan(35, 4, seed=3)
    excerpt = PlanExcerpt(whole, tuple(range(number, number + 1) for number in sorted(numbers)))
    hold(lambda: excerpt)
    batches = list(whole.batches(2))
    assert list(excerpt.batches(2)) == [batches[number] for number in sorted(numbers)]


@few
@given(st.integers(0, 8), st.integers(1, 4))
def test_every_so_many_th(first: int, step: int) -> None:
    whole = BatchPlan(35, 4, seed=3)
    excerpt = PlanExcerpt(whole, (range(first, 9, step),))
    hold(lambda: excerpt)
    assert list(excerpt.batches(2)) == list(whole.batches(2))[first::step]


def test_nothing_is_made_of_what_lies_between() -> None:
    asked: list[int] = []

    class Asked(BatchPlan):
        def batches(self, epoch: int, start: int = 0) -> Iterator[Draw]:
            for number, draw in enumerate(super().batches(epoch, start), start):
                asked.append(number)
                yield draw

    assert len(list(PlanExcerpt(Asked(400, 4), (range(3, 100, 32),)).batches(0))) == 4
    assert asked == [3, 35, 67, 99]


def test_describe(messages: Messages) -> None:
    whole = BatchPlan(8, 4)
    plan = PlanExcerpt(whole, (range(1),))
    assert "1 batch" in plan.describe() and plan.describe().endswith(whole.describe())
    messages.check(plan.describe())
    assert plan.num_samples == 8
