from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.base.errors import ConfigError
from roost.train.data.plans.batch_plan import BatchPlan
from roost.train.data.plans.virtual_epochs import LimitedEpochs, VirtualEpochs
from tests.messages import Messages
from tests.train.data.plans.laws import few, hold, no_drawing_twice


@few
@given(st.integers(1, 30), st.integers(1, 7), st.integers(1, 20))
def test_the_laws(num_samples: int, batch_size: int, num_batches: int) -> None:
    hold(lambda: VirtualEpochs(BatchPlan(num_samples, batch_size, seed=1), num_batches))
    no_drawing_twice(VirtualEpochs(BatchPlan(num_samples, batch_size), num_batches))
    hold(lambda: LimitedEpochs(BatchPlan(num_samples, batch_size, seed=1), num_batches))


@few
@given(st.integers(1, 30), st.integers(1, 7), st.integers(1, 20))
def test_one_epoch_after_the_other_is_the_whole(num_samples: int, batch_size: int, num_batches: int) -> None:
    whole = BatchPlan(num_samples, batch_size, seed=1)
    virtual = VirtualEpochs(whole, num_batches)
    found = [draw for epoch in range(5) for draw in virtual.batches(epoch)]
    endless = itertools.chain.from_iterable(map(whole.batches, itertools.count()))
    assert found == list(itertools.islice(endless, 5 * num_batches))


@few
@given(st.integers(1, 30), st.integers(1, 20), st.integers(0, 4))
def test_a_limit_takes_the_first(num_samples: int, num_batches: int, epoch: int) -> None:
    whole = BatchPlan(num_samples, 3, seed=1)
    limited = LimitedEpochs(whole, num_batches)
    assert list(limited.batches(epoch)) == list(whole.batches(epoch))[:num_batches]


def test_describe(messages: Messages) -> None:
    whole = BatchPlan(8, 4)
    for plan, fact in ((VirtualEpochs(whole, 3), "3 batches"), (LimitedEpochs(whole, 1), "1 batch")):
        assert fact in plan.describe() and plan.describe().endswith(whole.describe())
        messages.check(plan.describe())
    assert VirtualEpochs(whole, 3).num_samples == LimitedEpochs(whole, 1).num_samples == 8


def test_the_order_stays_what_it_is() -> None:
    """Another one would make every continued run inexact after an update of roost or NumPy."""
    plan = VirtualEpochs(BatchPlan(5, 2, seed=3), 2)
    assert [(draw.indices, draw.turn) for draw in plan.batches(1)] == [([0], 0), ([1, 3], 1)]


def test_what_cannot_be_planned(messages: Messages) -> None:
    with pytest.raises(ConfigError) as refused:
        VirtualEpochs(BatchPlan(8, 4), 0)
    assert refused.value.setting == "data.steps_per_epoch"
    assert "0" in str(refused.value)
    messages.check(refused.value)
    with pytest.raises(ConfigError) as refused:
        LimitedEpochs(BatchPlan(8, 4), 0)
    assert "0" in str(refused.value)
    messages.check(refused.value)
