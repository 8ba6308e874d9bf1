from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import ConcatDataset, DataLoader, IterableDataset, Subset, TensorDataset

import roost
from roost.package.results.data_report import LengthBin
from roost.worker.data_report.set_description import describe_set, histogram
from tests.messages import Messages


class Speech(torch.utils.data.Dataset[int]):
    """Tells everything, and must not be read for it."""

    classes = ("yes", "no")

    def __init__(self, lengths: list[int]) -> None:
        self.lengths = lengths
        self.targets = [index % 2 for index in range(len(lengths))]

    def weights(self) -> list[float]:
        return [0.0, *(2.0 for _ in self.lengths[1:])]

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> int:
        raise AssertionError("it was read")


class Items(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


def test_a_set_with_all_columns() -> None:
    found = describe_set("train", Speech([3, 1, 8, 5, 5]))
    assert (found.name, found.class_name, found.kind, found.num_samples) == (
        "train",
        "Speech",
        "map-style",
        5,
    )
    assert found.lengths is not None and found.weights is not None and found.classes is not None
    assert (found.lengths.least, found.lengths.median, found.lengths.most, found.lengths.mean) == (
        1,
        5,
        8,
        4.4,
    )
    assert sum(one.num_samples for one in found.lengths.bins) == 5
    assert (found.weights.least, found.weights.most, found.weights.num_zero) == (0, 2, 1)
    assert found.weights.bins == [] and found.unreadable == []
    assert (found.classes.number, found.classes.names) == (2, ["yes", "no"])
    assert (found.classes.fewest, found.classes.most) == (2, 3)


def test_a_subset_is_described_like_its_set() -> None:
    speech = Speech([3, 1, 8, 5])
    part = describe_set("valid", Subset(speech, [2, 0]))
    assert part.lengths is not None and (part.lengths.least, part.lengths.most) == (3, 8)
    assert part.classes is not None and part.classes.names == ["yes", "no"]
    assert part.classes.fewest == 0, "of one class there is none"
    both = describe_set("valid", ConcatDataset([speech, speech]))
    assert both.num_samples == 8 and both.lengths is not None and both.lengths.most == 8


def test_sets_without_columns(messages: Messages) -> None:
    kinds = []
    for dataset, number in (
        (TensorDataset(torch.zeros(7)), 7),
        (Items(), None),
        (roost.Sampled(lambda state, index, augment: ([1], 0), length=4), None),
    ):
        found = describe_set("test", dataset)
        assert found.num_samples == number
        kinds.append(found.kind)
        assert found.lengths is None and found.weights is None and found.classes is None
    assert len(set(kinds)) == 3
    messages.check("\n".join(kinds))


def test_a_loader_is_described_by_its_set(messages: Messages) -> None:
    found = describe_set("train", DataLoader(Speech([1, 2, 3]), batch_size=2))
    assert found.num_samples == 3 and "DataLoader" in found.class_name and "Speech" in found.class_name
    assert found.classes is not None
    messages.check(f"{found.class_name}: {found.kind}")
    assert describe_set("train", DataLoader(Items())).num_samples is None


def test_unreadable_columns_are_reported(messages: Messages) -> None:
    class Broken(TensorDataset):
        lengths: Any = (1, 2)  # of three

        def weights(self) -> list[float]:
            raise OSError("no such file")

        @property
        def classes(self) -> list[str]:
            raise OSError("no such file")

    found = describe_set("train", Broken(torch.zeros(3)))
    lengths, weights = found.unreadable
    assert "3 " in lengths and "2 lengths" in lengths
    assert "weights" in weights and weights.endswith(": OSError: no such file")
    messages.check("\n".join(found.unreadable))
    assert found.lengths is None and found.weights is None and found.classes is None


def test_labels_that_are_no_classes() -> None:
    given: tuple[Any, ...] = ([0.5, 0.7], [[1], [2]], [{}, {}], 7)
    for targets in given:
        dataset = TensorDataset(torch.zeros(2))
        dataset.targets = targets  # type: ignore[attr-defined]
        assert describe_set("train", dataset).classes is None


def test_each_length_is_in_one_bin() -> None:
    draw = np.random.default_rng(0)
    for high in (1, 2, 9, 10, 11, 1000, 2**40):
        for number in (1, 2, 50):
            lengths = draw.integers(0, high, number)
            bins = histogram(lengths)
            assert len(bins) <= 45 and bins[0].least == lengths.min() and bins[-1].most == lengths.max()
            assert all(one.most + 1 == after.least for one, after in itertools.pairwise(bins))
            for one in bins:
                assert one.num_samples == ((lengths >= one.least) & (lengths <= one.most)).sum()


def test_a_few_long_ones_do_not_hide_the_others() -> None:
    assert histogram(np.asarray([5] * 4 + [9] * 3 + [400])) == [
        *(LengthBin(5, 9, 7), LengthBin(10, 19, 0), LengthBin(20, 39, 0), LengthBin(40, 79, 0)),
        *(LengthBin(80, 159, 0), LengthBin(160, 319, 0), LengthBin(320, 400, 1)),
    ]
    assert histogram(np.asarray([0, 0, 0, 100]))[:3] == [
        LengthBin(0, 0, 3),
        LengthBin(1, 1, 0),
        LengthBin(2, 3, 0),
    ]
    assert histogram(np.asarray([7, 7])) == [LengthBin(7, 7, 2)]
