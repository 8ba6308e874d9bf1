from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from roost.base.errors import ConfigError
from roost.train.plans.columns import lengths_of, weights_of


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
    ("given", "message"),
    [
        ([1, -2], "the length of sample 1 is not a finite number of 0 or more; received -2"),
        ([1, 2, 2.5], r"the length of sample 2 is not a whole number below .*; received 2\.5"),
        ([1, float("nan")], "the length of sample 1 is not a finite number"),
        ([float("inf")], "the length of sample 0 is not a finite number"),
        ([2**64 - 1], "the length of sample 0 is not a whole number below"),
        ([[1, 2]], r"the lengths of the samples are int64 in the shape \(1, 2\)"),
        (["a"], "the lengths of the samples are <U1"),
        ([[1], [1, 2]], "the lengths of the samples cannot be read"),
        (3, r"are int64 in the shape \(\)"),
        (torch.ones(2, requires_grad=True), "the lengths of the samples cannot be read"),
    ],
)
def test_what_no_length_can_be(given: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=f"data.max_tokens: .*{message}"):
        lengths_of(given, setting="data.max_tokens")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([1, -2], "the weight of sample 1 is not a finite number of 0 or more; received -2"),
        ([1, float("nan")], "the weight of sample 1 is not a finite number of 0 or more; received nan"),
        ([0, 0.0], "the weights of the samples sum to 0, so nothing can be drawn"),
    ],
)
def test_what_no_weight_can_be(given: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=f"data.weighted: {message}"):
        weights_of(given, setting="data.weighted")


def test_their_number() -> None:
    with pytest.raises(ConfigError, match=r"data.weighted: 3 samples have 2 weights"):
        weights_of([1, 2], setting="data.weighted", set_size=3)
    with pytest.raises(ConfigError, match=r"data.mix.weights: 3 sets have 0 weights"):
        weights_of([], setting="data.mix.weights", set_size=3, of="set")
    with pytest.raises(ConfigError, match="the dataset is empty"):
        lengths_of([], setting="data.max_tokens", set_size=0)
