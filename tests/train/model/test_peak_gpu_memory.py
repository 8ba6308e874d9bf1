"""The most that torch's allocator has held; on a real GPU its own counters are asked."""

from __future__ import annotations

import pytest
import torch

from roost.train.model import peak_gpu_memory
from roost.train.model.peak_gpu_memory import PeakMemory
from tests.train.fake_cuda import FakeCuda

SECOND = torch.device("cuda:1")


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    fake = FakeCuda(2)
    fake.put_in_place(monkeypatch)
    monkeypatch.setattr(peak_gpu_memory, "_earlier_peaks", {})
    return fake


def test_rows_begin_the_counting_anew_and_the_most_stays(cuda: FakeCuda) -> None:
    cuda.reserved[1], cuda.allocated[1] = 300.0, 200.0
    assert peak_gpu_memory.process_peak(SECOND) == PeakMemory(300.0, 200.0)
    assert peak_gpu_memory.peak_since_last_call(SECOND) == 200.0 and cuda.resets == [1]
    cuda.reserved[1], cuda.allocated[1] = 310.0, 50.0
    assert peak_gpu_memory.peak_since_last_call(SECOND) == 50.0
    assert (
        peak_gpu_memory.process_peak(SECOND) == PeakMemory(310.0, 200.0)
        and peak_gpu_memory.process_peak(torch.device("cuda:0")) == PeakMemory()
    )


def test_a_device_without_a_number_is_the_current_one(cuda: FakeCuda) -> None:
    cuda.allocated[0] = 7.0
    assert peak_gpu_memory.peak_since_last_call(torch.device("cuda")) == 7.0 and cuda.resets == [0]
