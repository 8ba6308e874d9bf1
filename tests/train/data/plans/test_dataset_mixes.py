from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.base.errors import ConfigError
from roost.train.data.plans.batch_plan import BatchPlan, Draw
from roost.train.data.plans.dataset_mixes import ChainedPlan, CombinedPlan, EndlessOrder, MixedPlan
from roost.train.data.plans.weighted_sampling import WeightedPlan
from tests.messages import Messages
from tests.train.data.plans.laws import drawn, few, hold, no_drawing_twice

SIZES = st.lists(st.tuples(st.integers(1, 20), st.integers(1, 6)), min_size=1, max_size=3)
MODES = st.sampled_from(["min_size", "max_size_cycle"])
MIXES = st.builds(
    dict,
    sizes=st.lists(st.integers(1, 20), min_size=3, max_size=3),
    weights=st.lists(st.sampled_from([0.5, 1, 3]), min_size=3, max_size=3),
    batch_size=st.integers(1, 7),
    seed=st.integers(0, 2**63 - 1),
    num_draws=st.integers(14, 70),
)


def together(sizes: list[tuple[int, int]], how: Any) -> CombinedPlan:
    return CombinedPlan({f"s{n}": BatchPlan(*size, seed=n) for n, size in enumerate(sizes)}, how)


@few
@given(SIZES, MODES)
def test_the_laws_of_together(sizes: list[tuple[int, int]], how: str) -> None:
    hold(lambda: together(sizes, how))
    no_drawing_twice(together(sizes, how))
    counts = [-(-size // batch) for size, batch in sizes]
    assert together(sizes, how).num_batches == (min if how == "min_size" else max)(counts)
    assert together(sizes, how).num_samples == sum(size for size, _ in sizes)


@few
@given(SIZES, MODES)
def test_together_each_set_goes_on_where_it_stopped(sizes: list[tuple[int, int]], how: str) -> None:
    plan = together(sizes, how)
    found = [draws for epoch in range(4) for draws in plan.batches(epoch)]
    for name, one in plan.plans.items():
        endless = itertools.chain.from_iterable(map(one.batches, itertools.count()))
        assert [draws[name] for draws in found] == list(itertools.islice(endless, len(found)))


@few
@given(SIZES)
def test_the_laws_of_chained(sizes: list[tuple[int, int]]) -> None:
    offsets = [*itertools.accumulate((size for size, _ in sizes), initial=0)]
    plans = [BatchPlan(*size, seed=n) for n, size in enumerate(sizes)]
    chained = ChainedPlan([*zip(plans, offsets[:-1], strict=True)])
    hold(lambda: chained, starts=range(chained.num_batches))
    found = [index for _, index, _ in drawn(chained.batches(2))]
    assert sorted(found) == list(range(offsets[-1]))
    sets = [sum(index >= offset for offset in offsets) for index in found]
    assert sets == sorted(sets)


def test_chained_keeps_the_turns_of_its_sets() -> None:
    first, second = WeightedPlan([1, 1], 2, seed=0), BatchPlan(2, 2, shuffle=False)
    found = list(ChainedPlan([(first, 0), (second, 2)]).batches(3))
    assert found == [*first.batches(3), Draw([2, 3], 3)]


@few
@given(MIXES)
def test_the_laws_of_the_mix(mix: dict[str, Any]) -> None:
    hold(lambda: MixedPlan(**mix))
    no_drawing_twice(MixedPlan(**mix))


@few
@given(MIXES)
def test_the_mix_holds_the_shares_in_every_epoch(mix: dict[str, Any]) -> None:
    plan = MixedPlan(**mix)
    assert sum(plan.counts) == mix["num_draws"]
    for count, weight in zip(plan.counts, mix["weights"], strict=True):
        assert abs(count - mix["num_draws"] * weight / sum(mix["weights"])) < 1
    offsets = [*itertools.accumulate(mix["sizes"], initial=0)]
    seen: Counter[int] = Counter()
    for epoch in range(4):
        found = [index for _, index, _ in drawn(plan.batches(epoch))]
        seen.update(found)
        for number, (begin, end) in enumerate(itertools.pairwise(offsets)):
            assert sum(begin <= index < end for index in found) == plan.counts[number]
            times = [seen[index] for index in range(begin, end)]
            assert max(times) - min(times) <= 1


def test_the_mix_by_the_largest_remainder() -> None:
    assert MixedPlan([9, 9, 9], [1, 1, 1], 2, seed=0, num_draws=11).counts == [4, 4, 3]
    assert MixedPlan([9, 9, 9], [0.1, 0.2, 0.7], 2, seed=0, num_draws=10).counts == [1, 2, 7]
    assert MixedPlan([4, 0, 2], [1, 0, 1], 2, seed=0).counts == [3, 0, 3]


def test_a_mix_is_mixed() -> None:
    plan = MixedPlan([50, 50], [1, 1], 100, seed=0)
    (draw,) = plan.batches(0)
    sets = "".join(str(index // 50) for index in draw.indices)
    assert "0" * 15 not in sets and "1" * 15 not in sets


def test_sets_of_one_size_have_orders_of_their_own() -> None:
    (draw,) = MixedPlan([20, 20], [1, 1], 40, seed=0).batches(0)
    first, second = ([index % 20 for index in draw.indices if index // 20 == number] for number in range(2))
    assert first != second


def test_drop_last() -> None:
    mix = MixedPlan([5, 5], [1, 1], 4, seed=0, drop_last=True)
    assert [len(draw.indices) for draw in mix.batches(0)] == [4, 4]


def test_the_order_stays_what_it_is() -> None:
    """Another one would make every continued run inexact after an update of roost or NumPy."""
    (draw,) = MixedPlan([3, 2], [1, 1], 8, seed=3, num_draws=8).batches(1)
    assert draw == Draw([1, 4, 2, 2, 3, 3, 0, 4], [1, 2, 1, 2, 2, 3, 2, 3])
    plan = CombinedPlan({"a": BatchPlan(4, 2, seed=3), "b": BatchPlan(2, 2, seed=4)}, "max_size_cycle")
    assert [*plan.batches(1)] == [
        {"a": Draw([1, 2], 1), "b": Draw([0, 1], 2)},
        {"a": Draw([0, 3], 1), "b": Draw([1, 0], 3)},
    ]
    chained = ChainedPlan([(BatchPlan(3, 3, seed=3), 0), (BatchPlan(2, 2, seed=4), 3)])
    assert [*chained.batches(1)] == [Draw([1, 2, 0], 1), Draw([3, 4], 1)]


def test_describe(messages: Messages) -> None:
    plans = {"a": BatchPlan(4, 2), "b": BatchPlan(2, 2)}
    a, b = (plan.describe() for plan in plans.values())
    words = CombinedPlan(plans).describe()
    assert f"a: {a}" in words and f"b: {b}" in words and "1 batch " in words
    messages.check(words)
    words = CombinedPlan(plans, "max_size_cycle").describe()
    assert "2 batches" in words
    messages.check(words)
    words = ChainedPlan([(plans["a"], 0), (plans["b"], 4)]).describe()
    assert a in words and b in words
    messages.check(words)
    words = MixedPlan([40, 60], [1, 3], 10, seed=0).describe()
    assert all(fact in words for fact in ("2 sets", "25 + 75 samples", "10 samples", "10 batches"))
    messages.check(words)


@pytest.mark.parametrize(
    ("given", "setting", "facts"),
    [
        ({"sizes": [0, 0]}, None, []),
        ({"sizes": [4, 0]}, None, ["set 1 "]),
        ({"weights": [0, 0]}, "data.mix.weights", [" 0"]),
        ({"weights": [1, float("nan")]}, "data.mix.weights", ["set 1 ", "nan"]),
        ({"weights": [1, -1]}, "data.mix.weights", ["set 1 ", "-1"]),
        ({"weights": [1]}, "data.mix.weights", ["2 sets", "1 weight"]),
        ({"weights": [1, 1e-9]}, "data.mix.weights", ["8 samples", "set 1"]),
        ({"drop_last": True, "batch_size": 9}, "data.batch_size", ["8 samples"]),
    ],
    ids=["empty", "one empty", "zeros", "nan", "-1", "few", "small", "not one batch"],
)
def test_what_cannot_be_mixed(
    given: dict[str, Any], setting: str | None, facts: list[str], messages: Messages
) -> None:
    with pytest.raises(ConfigError) as refused:
        MixedPlan(**{"sizes": [4, 4], "weights": [1, 2], "batch_size": 4, "seed": 0, **given})
    assert refused.value.setting == setting
    assert all(fact in refused.value.detail for fact in facts)
    messages.check(refused.value)


def test_a_mix_of_nothing(messages: Messages) -> None:
    for make in (lambda: CombinedPlan({}), lambda: ChainedPlan([])):
        with pytest.raises(ConfigError) as refused:
            make()
        messages.check(refused.value)


@few
@given(st.integers(1, 50), st.integers(0, 5), st.integers(0, 20000), st.integers(0, 300))
def test_any_stretch_is_a_part_of_the_whole(size: int, seed: int, begin: int, count: int) -> None:
    whole, passes = EndlessOrder(size, seed).between(0, begin + count)
    found = EndlessOrder(size, seed).between(begin, begin + count)
    assert [part.tolist() for part in found] == [whole[begin:].tolist(), passes[begin:].tolist()]


@pytest.mark.parametrize("size", [1, 7, 4096, 5000])
def test_each_pass_holds_each_sample(size: int) -> None:
    found, passes = EndlessOrder(size, 3).between(0, 3 * size)
    rows = found.reshape(3, size)
    assert (np.sort(rows, axis=1) == np.arange(size)).all()
    assert passes.tolist() == [number for number in range(3) for _ in range(size)]
    assert size == 1 or (rows[0] != rows[1]).any()


def test_endless_order_the_order_stays_what_it_is() -> None:
    """Another one would make every continued run inexact after an update of roost or NumPy."""
    assert EndlessOrder(4, 3).between(4094, 4104)[0].tolist() == [1, 3, 3, 0, 1, 2, 1, 3, 0, 2]
    assert EndlessOrder(5000, 3).between(4998, 5002)[0].tolist() == [1472, 4057, 4757, 3324]
