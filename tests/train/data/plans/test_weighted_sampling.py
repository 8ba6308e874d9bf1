from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.base.errors import ConfigError
from roost.train.data.plans.batch_plan import Draw
from roost.train.data.plans.virtual_epochs import VirtualEpochs
from roost.train.data.plans.weighted_sampling import WeightedPlan, occurrences, turns
from tests.messages import Messages
from tests.train.data.plans.laws import drawn, few, hold, indices_of, no_drawing_twice

WEIGHTS = st.lists(st.sampled_from([0, 1, 1e-9, 0.3, 7, 1e300]), min_size=1, max_size=30).filter(any)
PLANS = st.builds(
    dict,
    weights=WEIGHTS,
    batch_size=st.integers(1, 9),
    seed=st.integers(0, 2**63 - 1),
    num_draws=st.none() | st.integers(1, 60),
)


@few
@given(PLANS)
def test_the_laws(plan: dict[str, Any]) -> None:
    hold(lambda: WeightedPlan(**plan))
    no_drawing_twice(WeightedPlan(**plan))
    no_drawing_twice(VirtualEpochs(WeightedPlan(**plan), 3))


@few
@given(PLANS, st.integers(0, 5))
def test_so_many_samples_and_none_of_weight_0(plan: dict[str, Any], epoch: int) -> None:
    found = indices_of(WeightedPlan(**plan), epoch)
    assert len(found) == (plan["num_draws"] or len(plan["weights"]))
    assert all(plan["weights"][index] > 0 for index in found)


def test_each_as_often_as_its_weight_says() -> None:
    plan = WeightedPlan([4, 0, 1, 3], 100, seed=5, num_draws=80_000)
    counts = np.bincount(indices_of(plan, 2), minlength=4)
    assert np.abs(counts - [40_000, 0, 10_000, 30_000]).max() < 600  # four standard deviations


def test_neighbours_do_not_depend_on_each_other() -> None:
    """Drawings are found in ascending order; nothing of it may be left."""
    found = np.array(indices_of(WeightedPlan(np.ones(10), 10, seed=1, num_draws=40_000), 0))
    pairs = np.bincount(found[:-1] * 10 + found[1:], minlength=100)
    assert np.abs(pairs - 400).max() < 100  # five standard deviations


def test_the_first_drawing_has_the_epoch_as_its_turn() -> None:
    found = list(drawn(WeightedPlan([1, 1, 1], 4, seed=0, num_draws=12).batches(7)))
    assert sorted(index for _, index, turn in found if turn == 7) == [0, 1, 2]
    assert all(2**32 < turn < 2**63 for _, _, turn in found if turn != 7)


def test_occurrences() -> None:
    assert occurrences(np.array([0, 0, 3, 4, 4, 4])).tolist() == [0, 1, 0, 0, 1, 2]


def test_turns_are_numbers_of_their_own() -> None:
    found = [turns(epoch, np.arange(1000)).tolist() for epoch in range(100)]
    assert [row[0] for row in found] == list(range(100))
    assert len({*itertools.chain(*found)}) == 100 * 1000


def test_drop_last() -> None:
    assert WeightedPlan([1] * 10, 4, seed=0).num_batches == 3
    plan = WeightedPlan([1] * 10, 4, seed=0, drop_last=True)
    assert [len(draw.indices) for draw in plan.batches(0)] == [4, 4]


def test_the_order_stays_what_it_is() -> None:
    """Another one would make every continued run inexact after an update of roost or NumPy."""
    (draw,) = WeightedPlan([1, 2, 0, 1], 5, seed=3, num_draws=5).batches(1)
    again = [2829587874102158351, 2672126546473025157, 38128273113825575]
    assert draw == Draw([1, 1, 3, 1, 1], [1, again[0], 1, again[1], again[2]])


def test_describe(messages: Messages) -> None:
    words = WeightedPlan([1, 2, 3], 2, seed=0, num_draws=2000).describe()
    assert all(fact in words for fact in ("2,000", "3 samples", "2 samples", "1,000 batches"))
    messages.check(words)


@pytest.mark.parametrize(
    ("given", "setting", "facts"),
    [
        ({"weights": []}, None, []),
        ({"weights": [0, 0]}, "data.weighted", [" 0"]),
        ({"weights": [1, float("nan")]}, "data.weighted", ["sample 1 ", "nan"]),
        ({"weights": [1, -1]}, "data.weighted", ["sample 1 ", "-1"]),
        ({"set_size": 3}, "data.weighted", ["3 samples", "2 weights"]),
        ({"drop_last": True}, "data.batch_size", ["2 samples"]),
        ({"drop_last": True, "num_draws": 1}, "data.batch_size", ["1 sample"]),
    ],
    ids=["empty", "zeros", "nan", "-1", "few", "not one batch", "few draws"],
)
def test_what_cannot_be_planned(
    given: dict[str, Any], setting: str | None, facts: list[str], messages: Messages
) -> None:
    with pytest.raises(ConfigError) as refused:
        WeightedPlan(**{"weights": [1, 2], "batch_size": 4, "seed": 0, **given})
    assert refused.value.setting == setting
    assert all(fact in refused.value.detail for fact in facts)
    messages.check(refused.value)


def test_a_set_of_one() -> None:
    (draw,) = WeightedPlan([0.2], 4, seed=0).batches(3)
    assert draw == Draw([0], [3])
