from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from roost.base.errors import ConfigError
from roost.train.data.plans.sample_columns import lengths_of, weights_of
from tests.messages import Messages


@pytest.mark.parametrize("kind", [list, tuple, np.array, np.float32, torch.tensor])
def test_whatever_holds_numbers(kind: Any) -> None:
    lengths = lengths_of(kind([3, 0, 7]), setting="data.max_tokens", set_size=3)
    assert lengths.tolist() == [3, 0, 7] and lengths.dtype == np.int64
    assert weights_of(kind([2, 0, 1]), setting="data.weighted").tolist() == [1, 0, 0.5]


def test_it_is_a_copy() -> None:
    given = np.array([1, 2])
    lengths = lengths_of(given, setting="data.max_tokens")
    given[0] = 9
    assert lengths.tolist() == [1, 2]


def test_large_weights_do_not_overflow() -> None:
    assert weights_of([1e308, 1e308, 5e307], setting="data.weighted").sum() == 2.5


@pytest.mark.parametrize(
    ("given", "facts"),
    [
        ([1, -2], ["sample 1 ", "-2"]),
        ([1, 2, 2.5], ["sample 2 ", "2.5"]),
        ([1, float("nan")], ["sample 1 ", "nan"]),
        ([float("inf")], ["sample 0 ", "inf"]),
        ([2**64 - 1], ["sample 0 "]),
        ([[1, 2]], ["int64", "(1, 2)"]),
        (["a"], ["<U1"]),
        ([[1], [1, 2]], None),
        (3, ["int64", "()"]),
        (torch.ones(2, requires_grad=True), None),
    ],
    ids=["-2", "2.5", "nan", "inf", "large", "rows", "words", "ragged", "one", "with gradients"],
)
def test_what_no_length_can_be(given: Any, facts: list[str] | None, messages: Messages) -> None:
    with pytest.raises(ConfigError) as refused:
        lengths_of(given, setting="data.max_tokens")
    assert refused.value.setting == "data.max_tokens"
    if facts is None:  # the rest is what NumPy says
        assert "length" in refused.value.message
    else:
        assert all(fact in refused.value.detail for fact in facts)
        messages.check(refused.value)


@pytest.mark.parametrize(
    ("given", "facts"),
    [
        ([1, -2], ["sample 1 ", "-2"]),
        ([1, float("nan")], ["sample 1 ", "nan"]),
        ([0, 0.0], [" 0"]),
    ],
    ids=["-2", "nan", "zeros"],
)
def test_what_no_weight_can_be(given: Any, facts: list[str], messages: Messages) -> None:
    with pytest.raises(ConfigError) as refused:
        weights_of(given, setting="data.weighted")
    assert refused.value.setting == "data.weighted"
    assert all(fact in refused.value.detail for fact in facts)
    messages.check(refused.value)


def test_their_number(messages: Messages) -> None:
    with pytest.raises(ConfigError) as refused:
        weights_of([1, 2], setting="data.weighted", set_size=3)
    assert refused.value.setting == "data.weighted"
    assert all(fact in str(refused.value) for fact in ("3 samples", "2 weights"))
    messages.check(refused.value)
    with pytest.raises(ConfigError) as refused:
        weights_of([], setting="data.mix.weights", set_size=3, of="set")
    assert refused.value.setting == "data.mix.weights"
    assert all(fact in str(refused.value) for fact in ("3 sets", "0 weights"))
    messages.check(refused.value)
    with pytest.raises(ConfigError) as refused:
        lengths_of([], setting="data.max_tokens", set_size=0)
    messages.check(refused.value)
