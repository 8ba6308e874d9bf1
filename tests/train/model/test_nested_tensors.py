from __future__ import annotations

from collections import OrderedDict
from typing import Any, NamedTuple

import torch

from roost.train.model.nested_tensors import format_shapes, nested_tensors
from tests.messages import Messages


class Pair(NamedTuple):
    first: Any
    second: Any


def test_tensors_are_found_in_order_in_every_collection() -> None:
    one, two, three = torch.zeros(1), torch.zeros(2), torch.zeros(3)
    nest = [OrderedDict(a=one, b=(two, "text", None)), {"c": Pair(three, [one])}, {torch.zeros(4)}]
    assert list(map(id, nested_tensors(nest))) == list(map(id, [one, two, three, one]))


def test_a_tensor_alone_and_no_tensor() -> None:
    one = torch.zeros(1)
    assert list(nested_tensors(one)) == [one] and list(nested_tensors({"a": 1})) == []


def test_collections_below_the_depth_are_not_searched() -> None:
    one, two = torch.zeros(1), torch.zeros(2)
    nest: list[Any] = [one, [two]]
    assert [x.numel() for x in nested_tensors(nest, max_depth=1)] == [1]
    assert [x.numel() for x in nested_tensors(nest, max_depth=2)] == [1, 2]
    assert list(nested_tensors(one, max_depth=0)) == [one]
    nest.append(nest)
    assert [x.numel() for x in nested_tensors(nest, max_depth=2)] == [1, 2, 1]


def test_shapes_of_nests(messages: Messages) -> None:
    one = torch.ones(2, 3)
    said = format_shapes({"x": one, "y": [torch.tensor(1.0)]})
    assert said.startswith("2x3, ")
    messages.check(said)
    assert format_shapes([one] * 4) == "2x3, 2x3, 2x3, 2x3"
    assert format_shapes([one] * 5) == "2x3, 2x3, 2x3, 2x3, …"
    assert format_shapes([one, [[one]]], max_depth=2) == "2x3"
    assert format_shapes("words") == ""
