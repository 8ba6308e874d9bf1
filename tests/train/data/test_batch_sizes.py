"""How many samples a batch holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from roost.train.data.batch_sizes import count_samples, is_empty


@dataclass
class Pair:
    x: Any
    y: Any


ROWS = torch.zeros(5, 2)


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (ROWS, 5),
        (np.zeros((4, 2)), 4),
        ({"scale": torch.tensor(2.0), "x": ROWS}, 5),
        ([["a", "b"], [ROWS]], 5),
        (Pair("name", ROWS), 5),
        (["a", "b", "c"], 3),
        ([torch.tensor(1.0), torch.tensor(2.0)], 2),
        ("text", 1),
        ({"x": 1.0}, 1),
        (torch.tensor(1.0), 1),
    ],
)
def test_the_first_leading_dimension_counts(value: Any, number: int) -> None:
    assert count_samples(value) == number and not is_empty(value)


@pytest.mark.parametrize("value", [None, [], (), {}, torch.zeros(0, 3), np.zeros(0)])
def test_nothing(value: Any) -> None:
    assert count_samples(value) == 0 and is_empty(value)


def test_a_batch_of_no_rows_is_empty() -> None:
    assert count_samples({"x": torch.zeros(0, 3), "y": torch.zeros(0)}) == 0
