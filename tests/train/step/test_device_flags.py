from __future__ import annotations

import pytest
import torch

from roost.train.step import device_flags as module
from roost.train.step.device_flags import DeviceFlags
from tests.train.reads import CountsReads


def flagged(steps: range, bad: set[int]) -> DeviceFlags:
    found = DeviceFlags()
    for step in steps:
        found.add(step, torch.tensor(step in bad))
    return found


def test_reads_the_flagged_steps_and_the_newest_other_one() -> None:
    found = flagged(range(3, 9), {4, 7, 8})
    assert found.read() == ([4, 7, 8], 6)
    assert found.read() == ([4, 7, 8], 6)  # they stay
    found.clear()
    assert found.read() == ([], None)


def test_none_or_all_are_set() -> None:
    assert flagged(range(1, 4), set()).read() == ([], 3)
    assert flagged(range(1, 4), {1, 2, 3}).read() == ([1, 2, 3], None)


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_many_take_little_memory_and_nothing_is_read_back_before_the_end(more: int) -> None:
    number = 2 * module._FOLD_STEPS + more
    bad = {1, module._FOLD_STEPS, module._FOLD_STEPS + 1, number}
    with CountsReads() as counter:
        found = flagged(range(1, number + 1), bad)
    assert counter.reads == 0 and len(found._waiting) < module._FOLD_STEPS
    assert found.read() == (sorted(bad), number - 1)
