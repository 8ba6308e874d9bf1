from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.train.data.plans.endless_order import EndlessOrder
from tests.train.data.plans.laws import few


@few
@given(st.integers(1, 50), st.integers(0, 5), st.integers(0, 20000), st.integers(0, 300))
def test_any_stretch_is_a_part_of_the_whole(size: int, seed: int, begin: int, count: int) -> None:
    whole, passes = EndlessOrder(size, seed).between(0, begin + count)
    found = EndlessOrder(size, seed).between(begin, begin + count)
    assert [part.tolist() for part in found] == [whole[begin:].tolist(), passes[begin:].tolist()]


@pytest.mark.parametrize("size", [1, 7, 4096, 5000])
def test_each_pass_holds_each_sample(size: int) -> None:
    found, passes = EndlessOrder(size, 3).between(0, 3 * size)
    rows = found.reshape(3, size)
    assert (np.sort(rows, axis=1) == np.arange(size)).all()
    assert passes.tolist() == [number for number in range(3) for _ in range(size)]
    assert size == 1 or (rows[0] != rows[1]).any()


def test_the_order_stays_what_it_is() -> None:
    """Another one would make every continued run inexact after an update of roost or NumPy."""
    assert EndlessOrder(4, 3).between(4094, 4104)[0].tolist() == [1, 3, 3, 0, 1, 2, 1, 3, 0, 2]
    assert EndlessOrder(5000, 3).between(4998, 5002)[0].tolist() == [1472, 4057, 4757, 3324]
