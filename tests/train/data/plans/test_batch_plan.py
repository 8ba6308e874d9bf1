from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.base.errors import ConfigError
from roost.train.data.plans.batch_plan import BatchPlan, Draw, PlanExcerpt, num_samples_of
from tests.messages import Messages
from tests.train.data.plans.laws import few, hold, indices_of

PLANS = st.builds(
    dict,
    num_samples=st.integers(1, 60),
    batch_size=st.integers(1, 12),
    seed=st.integers(0, 2**63 - 1),
    shuffle=st.booleans(),
)


@few
@given(PLANS)
def test_the_laws(plan: dict[str, Any]) -> None:
    hold(lambda: BatchPlan(**plan))


@few
@given(PLANS, st.integers(0, 5))
def test_every_index_once_an_epoch(plan: dict[str, Any], epoch: int) -> None:
    assert sorted(indices_of(BatchPlan(**plan), epoch)) == list(range(plan["num_samples"]))
    assert {draw.turn for draw in BatchPlan(**plan).batches(epoch)} == {epoch}


@few
@given(PLANS)
def test_full_batches_but_the_last(plan: dict[str, Any]) -> None:
    size, num_samples = plan["batch_size"], plan["num_samples"]
    sizes = [num_samples_of(draw) for draw in BatchPlan(**plan).batches(0)]
    assert set(sizes[:-1]) <= {size} and 0 < sizes[-1] <= size
    if num_samples < size:
        with pytest.raises(ConfigError) as refused:
            BatchPlan(**plan, drop_last=True)
        assert refused.value.setting == "data.batch_size"
    else:
        full = [num_samples_of(draw) for draw in BatchPlan(**plan, drop_last=True).batches(0)]
        assert full == [size] * (num_samples // size)


def test_epochs_and_seeds_differ_and_repeat() -> None:
    plan, other = BatchPlan(50, 7, seed=1), BatchPlan(50, 7, seed=2)
    assert indices_of(plan, 0) == indices_of(BatchPlan(50, 7, seed=1), 0)
    assert indices_of(plan, 0) != indices_of(plan, 1)
    assert indices_of(plan, 0) != indices_of(other, 0)
    unshuffled = BatchPlan(5, 2, shuffle=False)
    assert list(unshuffled.batches(3)) == [Draw([0, 1], 3), Draw([2, 3], 3), Draw([4], 3)]
    assert indices_of(unshuffled, 0) == indices_of(unshuffled, 3)


def test_the_order_stays_what_it_is() -> None:
    """Another one would make every continued run inexact after an update of roost or NumPy."""
    assert BatchPlan(8, 8, seed=3).order(1).tolist() == [2, 1, 4, 3, 5, 6, 0, 7]


def test_samples_of_a_batch_of_several_sets() -> None:
    assert num_samples_of({"a": Draw([3, 4], 0), "b": Draw([], [])}) == 2


def test_describe(messages: Messages) -> None:
    words = BatchPlan(4000, 16).describe()
    assert "16 samples" in words and "250 batches" in words
    messages.check(words)
    messages.check(BatchPlan(4, 2, shuffle=False).describe())


def test_what_cannot_be_planned(messages: Messages) -> None:
    with pytest.raises(ConfigError) as refused:
        BatchPlan(0, 4)
    messages.check(refused.value)
    with pytest.raises(ConfigError) as refused:
        BatchPlan(3, 4, drop_last=True)
    assert refused.value.setting == "data.batch_size"
    assert all(fact in str(refused.value) for fact in ("3 ", "4"))
    messages.check(refused.value)
    with pytest.raises(ConfigError) as refused:
        BatchPlan(1, 2, drop_last=True)
    assert refused.value.setting == "data.batch_size"
    assert "1 sample" in str(refused.value)
    messages.check(refused.value)
    assert list(BatchPlan(1, 4).batches(7)) == [Draw([0], 7)]


def test_more_samples_than_an_order_has_room_for(messages: Messages) -> None:
    many = 10**13
    with pytest.raises(ConfigError) as refused:
        next(BatchPlan(many, 2).batches(0))
    assert refused.value.setting == "data.shuffle"
    assert "10,000,000,000,000" in str(refused.value)
    messages.check(str(refused.value).replace(str(refused.value.__cause__), "<NumPy's>"))
    plan = BatchPlan(many, 2, shuffle=False)
    assert next(plan.batches(0, plan.num_batches - 1)) == Draw([many - 2, many - 1], 0)


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


def test_plan_excerpt_describe(messages: Messages) -> None:
    whole = BatchPlan(8, 4)
    plan = PlanExcerpt(whole, (range(1),))
    assert "1 batch" in plan.describe() and plan.describe().endswith(whole.describe())
    messages.check(plan.describe())
    assert plan.num_samples == 8
