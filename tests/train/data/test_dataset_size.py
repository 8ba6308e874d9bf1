from __future__ import annotations

from typing import Any

import pytest

from roost.base.errors import ContractError
from roost.train.data.dataset_size import DatasetLengths, dataset_length
from tests.messages import Messages


class Bare:
    def __getitem__(self, index: int) -> int:
        return index


def test_a_set_that_stays_as_it_is() -> None:
    counted = DatasetLengths([1, 2], "the training set")
    counted.check()
    assert counted.lengths == {"the training set": 2}
    assert counted.describe_changes(counted.lengths) == [] == counted.describe_changes({})


def test_a_set_whose_length_changes(messages: Messages) -> None:
    samples = [0] * 1000
    counted = DatasetLengths(samples, "the training set")
    del samples[900:]
    with pytest.raises(ContractError) as refused:
        counted.check()
    assert all(fact in str(refused.value) for fact in ("the training set", "1,000", "900"))
    messages.check(refused.value)


def test_another_length_than_when_the_checkpoint_was_made(messages: Messages) -> None:
    counted = DatasetLengths([0] * 990, "the training set")
    (why,) = counted.describe_changes({"the training set": 1000})
    assert "the training set" in why and "990" in why and "1,000" in why
    messages.check(why)


def test_of_several_sets_the_one_is_named(messages: Messages) -> None:
    sets: dict[str, list[int]] = {"photos": [1, 2], "drawings": [1]}
    counted = DatasetLengths(sets)
    (why,) = counted.describe_changes({"the set photos": 2, "the set drawings": 4, "the set of old": 3})
    assert "the set drawings" in why and "1 " in why and "4 " in why
    sets["photos"].append(3)
    with pytest.raises(ContractError) as refused:
        counted.check()
    assert all(fact in str(refused.value) for fact in ("the set photos", "2", "3"))
    messages.check(refused.value)


@pytest.mark.parametrize(("dataset", "expected"), [([1], 1), (Bare(), None), ("ab", 2)])
def test_length(dataset: Any, expected: int | None) -> None:
    assert dataset_length(dataset) == expected
    DatasetLengths(dataset).check()
