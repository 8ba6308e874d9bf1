from __future__ import annotations

from typing import Any

import pytest

from roost.base.errors import ContractError
from roost.train.data.counted import Counted, length


class Bare:
    def __getitem__(self, index: int) -> int:
        return index


def test_a_set_that_stays_as_it_is() -> None:
    counted = Counted([1, 2], "the training set")
    counted.check()
    assert counted.lengths == {"the training set": 2}
    assert counted.others_than(counted.lengths) == [] == counted.others_than({})


def test_a_set_whose_length_changes() -> None:
    samples = [0] * 1000
    counted = Counted(samples, "the training set")
    del samples[900:]
    with pytest.raises(
        ContractError, match=r"^the training set had 1,000 samples and has 900 now\. To mend it"
    ):
        counted.check()


def test_another_length_than_when_the_checkpoint_was_made() -> None:
    counted = Counted([0] * 990, "the training set")
    assert counted.others_than({"the training set": 1000}) == [
        "the training set has 990 samples, it had 1,000 when the checkpoint was made: "
        "the order of the rest is another one"
    ]


def test_of_several_sets_the_one_is_named() -> None:
    sets: dict[str, list[int]] = {"photos": [1, 2], "drawings": [1]}
    counted = Counted(sets)
    assert counted.others_than({"the set photos": 2, "the set drawings": 4, "the set of old": 3}) == [
        "the set drawings has 1 samples, it had 4 when the checkpoint was made: "
        "the order of the rest is another one"
    ]
    sets["photos"].append(3)
    with pytest.raises(ContractError, match="the set photos had 2 samples and has 3 now"):
        counted.check()


@pytest.mark.parametrize(("dataset", "expected"), [([1], 1), (Bare(), None), ("ab", 2)])
def test_length(dataset: Any, expected: int | None) -> None:
    assert length(dataset) == expected
    Counted(dataset).check()
