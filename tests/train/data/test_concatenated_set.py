from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from roost.train.data.concatenated_set import concatenate
from roost.train.data.fetch import BatchFetcher
from roost.train.data.plans.batch_plan import Draw


class Drawing:
    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int, rng: np.random.Generator) -> float:
        return index + float(rng.random())


class Broken(list[Any]):
    def __getitem__(self, index: Any) -> Any:
        raise OSError("gone")


class Plain(list[Any]):
    draws_randomness = False


def test_one_after_the_other() -> None:
    sets = concatenate({"a": [1, 2], "b": [3], "c": [4, 5]})
    assert len(sets) == 5 and [sets[i] for i in range(5)] == [1, 2, 3, 4, 5]


def test_a_set_that_takes_rng_gets_one_and_the_others_none() -> None:
    sets = concatenate({"a": ["x"], "b": Drawing()})
    fetch = BatchFetcher(sets, collate=list, seed=3)
    first, second = fetch(Draw([0, 1, 2], 0)), fetch(Draw([0, 1, 2], 0))
    assert first == second and first[0] == "x" and 0 < first[1] < 1 < first[2] < 2
    assert fetch(Draw([1], 1)) != first[1:2]


def test_randomness_is_paid_for_where_one_draws() -> None:
    assert not concatenate({"a": Plain([1]), "b": Plain([2])}).draws_randomness
    assert concatenate({"a": Plain([1]), "b": [2]}).draws_randomness


def test_an_error_names_the_sample_as_its_own_set_counts() -> None:
    sets = concatenate({"clean": [1, 2], "noisy": Broken([0, 0])})
    with pytest.raises(OSError) as caught:
        BatchFetcher(sets, name="the training set")(Draw([3], 0))
    inner, outer = caught.value.__notes__
    assert "sample 1 of noisy (Broken)" in inner and "sample 3 of the training set (ConcatenatedSet)" in outer
