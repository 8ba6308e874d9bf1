from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.base.errors import ConfigError
from roost.train.data.plans.batch_plan import Draw
from roost.train.data.plans.length_batches import LengthPlan
from tests.messages import Messages
from tests.train.data.plans.laws import few, hold, indices_of

PLANS = st.builds(
    dict,
    lengths=st.lists(st.integers(0, 20), min_size=1, max_size=60),
    batch_size=st.none() | st.integers(1, 9),
    max_tokens=st.integers(20, 80),
    count_padding=st.booleans(),
    sort=st.sampled_from([None, "ascending", "descending"]),
    shuffle=st.booleans(),
    seed=st.integers(0, 2**63 - 1),
)


def batches_of(plan: LengthPlan, epoch: int) -> list[list[int]]:
    return [draw.indices for draw in plan.batches(epoch)]


def lengths_in(plan: LengthPlan, epoch: int, lengths: list[int]) -> list[list[int]]:
    return [[lengths[index] for index in batch] for batch in batches_of(plan, epoch)]


@few
@given(PLANS)
def test_the_laws(plan: dict[str, Any]) -> None:
    hold(lambda: LengthPlan(**plan))


@few
@given(PLANS, st.integers(0, 5))
def test_every_index_once_an_epoch(plan: dict[str, Any], epoch: int) -> None:
    assert sorted(indices_of(LengthPlan(**plan), epoch)) == list(range(len(plan["lengths"])))
    assert {draw.turn for draw in LengthPlan(**plan).batches(epoch)} == {epoch}


@few
@given(PLANS, st.booleans(), st.integers(0, 3))
def test_the_budget_is_kept(plan: dict[str, Any], drop_last: bool, epoch: int) -> None:
    try:
        found = lengths_in(LengthPlan(**plan, drop_last=drop_last), epoch, plan["lengths"])
    except ConfigError as error:
        assert drop_last and error.setting in ("data.max_tokens", "data.batch_size")
        return
    for batch in found:
        cost = len(batch) * max(batch) if plan["count_padding"] else sum(batch)
        assert 0 < cost <= plan["max_tokens"] or max(batch) == 0
        assert 0 < len(batch) <= (plan["batch_size"] or len(batch))


@few
@given(PLANS, st.integers(0, 3))
def test_batches_are_as_large_as_can_be(plan: dict[str, Any], epoch: int) -> None:
    """In the order in which they are cut, none would take the first sample of the next."""
    found = lengths_in(LengthPlan(**plan), epoch, plan["lengths"])
    if plan["shuffle"] and plan["sort"] is None:
        found.sort(key=lambda batch: (batch[0], batch[-1], len(batch)), reverse=True)
    if plan["sort"] == "ascending":
        found = [batch[::-1] for batch in reversed(found)]
    for batch, following in itertools.pairwise(found):
        more = [*batch, following[0]]
        cost = len(more) * max(more) if plan["count_padding"] else sum(more)
        assert cost > plan["max_tokens"] or len(batch) == plan["batch_size"]


@few
@given(PLANS, st.sampled_from(["ascending", "descending"]))
def test_sorted_by_length(plan: dict[str, Any], sort: str) -> None:
    found = itertools.chain(*lengths_in(LengthPlan(**{**plan, "sort": sort}), 1, plan["lengths"]))
    assert list(found) == sorted(plan["lengths"], reverse=sort == "descending")


@pytest.mark.parametrize("sort", ["ascending", "descending"])
def test_equal_lengths_are_shuffled_or_keep_the_order_of_the_set(sort: Any) -> None:
    limits: dict[str, Any] = {"batch_size": 4, "sort": sort, "seed": 0}
    shuffled = LengthPlan([5] * 20, shuffle=True, **limits)
    assert indices_of(shuffled, 0) != indices_of(shuffled, 1) != list(range(20))
    assert indices_of(LengthPlan([5] * 20, shuffle=False, **limits), 1) == list(range(20))


def test_without_sort_batches_of_like_length_come_shuffled() -> None:
    lengths = [length for length in range(1, 31) for _ in range(4)]
    plan = LengthPlan(lengths, batch_size=4, shuffle=True, seed=1)
    for epoch in range(2):
        found = lengths_in(plan, epoch, lengths)
        assert all(len({*batch}) == 1 for batch in found)
        assert [batch[0] for batch in found] not in (list(range(1, 31)), list(range(30, 0, -1)))
    assert lengths_in(plan, 0, lengths) != lengths_in(plan, 1, lengths)


@pytest.mark.parametrize(
    ("limits", "batches"),
    [
        ({}, [[0, 1, 2], [3, 4], [5], [6, 7]]),
        ({"batch_size": 2}, [[0, 1], [2, 3], [4], [5], [6, 7]]),
        ({"count_padding": False}, [[0, 1, 2, 3], [4], [5, 6], [7]]),
        ({"count_padding": False, "batch_size": 3}, [[0, 1, 2], [3, 4], [5, 6], [7]]),
        ({"max_tokens": None, "batch_size": 5}, [[0, 1, 2, 3, 4], [5, 6, 7]]),
    ],
)
def test_without_sort_and_shuffle_the_set_keeps_its_order(
    limits: dict[str, Any], batches: list[list[int]]
) -> None:
    given = {"max_tokens": 12, "shuffle": False, "seed": 0, **limits}
    assert batches_of(LengthPlan([3, 1, 4, 1, 5, 9, 2, 6], **given), 2) == batches


@pytest.mark.parametrize(
    "limits", [{"batch_size": 6}, {"max_tokens": 60}, {"max_tokens": 45, "count_padding": False}]
)
def test_drop_last_leaves_out_others_each_epoch(limits: dict[str, Any]) -> None:
    """Were it always the shortest or the longest, these would never be trained on."""
    lengths = list(range(1, 30))
    plan = LengthPlan(lengths, shuffle=True, seed=0, drop_last=True, **limits)
    whole = LengthPlan(lengths, shuffle=True, seed=0, **limits)
    assert plan.num_batches == whole.num_batches - 1
    counts = Counter(index for epoch in range(60) for index in indices_of(plan, epoch))
    assert {*counts} == {*range(29)} and max(counts.values()) <= 60
    assert len({*counts.values()} - {60}) > 1


def test_drop_last_without_shuffle() -> None:
    def left_out(**given: Any) -> set[int]:
        plan = LengthPlan([4, 9, 2, 6, 5], batch_size=2, shuffle=False, seed=0, drop_last=True, **given)
        return {*range(5)} - {*indices_of(plan, 0)}

    assert left_out() == {4}
    assert left_out(sort="ascending") == left_out(sort="descending") == {2}


def test_a_full_last_batch_is_not_left_out() -> None:
    given: dict[str, Any] = {"shuffle": True, "seed": 0, "drop_last": True}
    assert LengthPlan([5] * 8, batch_size=4, **given).num_batches == 2
    assert LengthPlan([5] * 8, max_tokens=23, **given).num_batches == 2
    assert LengthPlan([5] * 8, max_tokens=23, count_padding=False, **given).num_batches == 2
    assert LengthPlan([5] * 7, max_tokens=23, **given).num_batches == 1


def test_the_order_stays_what_it_is() -> None:
    """Another one would make every continued run inexact after an update of roost or NumPy."""
    given: dict[str, Any] = {"lengths": [3, 3, 7, 1, 3, 7, 3, 2], "max_tokens": 14, "seed": 3}
    assert batches_of(LengthPlan(**given, shuffle=True), 1) == [[6, 0, 1, 4], [5, 2], [7, 3]]
    ascending = LengthPlan(**given, shuffle=True, sort="ascending", drop_last=True)
    assert batches_of(ascending, 1) == [[3, 7, 6, 0], [1, 5]]


def test_describe(messages: Messages) -> None:
    given: dict[str, Any] = {"lengths": [3] * 4000, "seed": 0}
    words = LengthPlan(**given, max_tokens=3000, shuffle=True).describe()
    assert "3,000 tokens" in words and "4 batches" in words
    messages.check(words)
    words = LengthPlan(
        **given, max_tokens=3000, batch_size=40, count_padding=False, sort="ascending", shuffle=True
    ).describe()
    assert all(fact in words for fact in ("ascending", "40 samples", "3,000 tokens", "100 batches"))
    messages.check(words)
    messages.check(LengthPlan(**given, batch_size=40, shuffle=False).describe())


@pytest.mark.parametrize(
    ("given", "setting", "facts"),
    [
        ({"lengths": []}, None, []),
        ({"lengths": [3, 1200]}, "data.max_tokens", ["sample 1 ", "1,200 tokens", "10", "1200"]),
        ({"lengths": [3, 4.5]}, "data.max_tokens", ["sample 1 ", "4.5"]),
        ({"lengths": [3, -4]}, "data.max_tokens", ["sample 1 ", "-4"]),
        ({"max_tokens": None, "batch_size": 2, "lengths": [3, -4]}, "data.sort_by_length", ["sample 1 "]),
        ({"set_size": 3}, "data.max_tokens", ["3 samples", "2 lengths"]),
        ({"max_tokens": None}, "data.batch_size", []),
        ({"batch_size": 3, "drop_last": True}, "data.batch_size", ["3"]),
        ({"drop_last": True}, "data.max_tokens", ["10"]),
    ],
    ids=["empty", "too long", "4.5", "-4", "sorted", "few", "no limit", "few samples", "few tokens"],
)
def test_what_cannot_be_planned(
    given: dict[str, Any], setting: str | None, facts: list[str], messages: Messages
) -> None:
    with pytest.raises(ConfigError) as refused:
        LengthPlan(**{"lengths": [3, 2], "max_tokens": 10, "shuffle": True, "seed": 0, **given})
    assert refused.value.setting == setting
    assert all(fact in str(refused.value) for fact in facts)
    messages.check(refused.value)


def test_a_set_of_one_and_samples_without_length() -> None:
    assert list(LengthPlan([7], max_tokens=7, shuffle=True, seed=0).batches(3)) == [Draw([0], 3)]
    assert LengthPlan([0] * 5, max_tokens=1, shuffle=True, seed=0).num_batches == 1
    assert LengthPlan([0] * 5, max_tokens=1, batch_size=2, shuffle=True, seed=0).num_batches == 3
