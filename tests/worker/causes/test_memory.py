from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from roost.base.raised import raised
from roost.train import evaluation
from roost.train.data.batches import Batch
from roost.worker.causes import memory
from tests.project.projects import project
from tests.worker.causes.scenes import known, of, unknown

# As torch raised them: 2.5 and later, 2.1 (with its typing error, in a container), 1.13.
NEW = (
    "CUDA out of memory. Tried to allocate 1.95 GiB. GPU 0 has a total capacity of 14.57 GiB of which "
    "1.58 GiB "
    "is free. Process 2493055 has 12.02 GiB memory in use. Including non-PyTorch memory, this process "
    "has 966.00 "
    "MiB memory in use. Of the allocated memory 734.07 MiB is allocated by PyTorch, and 33.93 MiB is "
    "reserved by "
    "PyTorch but unallocated. If reserved but unallocated memory is large try setting "
    "PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory "
    "Management "
    " (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
)
CONTAINER = (
    "CUDA out of memory. Tried to allocate 1.95 GiB. GPU 0 has a total capacty of 14.75 GiB of which "
    "1.66 GiB is "
    "free. Process 414660 has 13.09 GiB memory in use. Of the allocated memory 10.09 GiB is allocated "
    "by PyTorch, "
    "and 3.92 GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large "
    "try setting "
    "max_split_size_mb to avoid fragmentation.  See documentation for Memory Management and "
    "PYTORCH_CUDA_ALLOC_CONF"
)
OLD = (
    "CUDA out of memory. Tried to allocate 1.69 GiB (GPU 0; 14.56 GiB total capacity; 649.97 MiB already "
    "allocated; 1.31 GiB free; 1.01 GiB reserved in total by PyTorch) If reserved memory is >> "
    "allocated memory "
    "try setting max_split_size_mb to avoid fragmentation.  See documentation for Memory Management and "
    "PYTORCH_CUDA_ALLOC_CONF"
)


def test_the_numbers_of_torch() -> None:
    cause = known(torch.OutOfMemoryError(NEW))
    assert cause.words == (
        "GPU 0 is out of memory: 1.95 GiB more were asked for, 1.58 GiB of 14.57 GiB are free; "
        "tensors hold 734.07 MiB, torch keeps 33.93 MiB in reserve; process 2493055 holds 12.02 GiB"
    )
    assert cause.fix.startswith("take another GPU, or end process 2493055 if it is yours; or a smaller")
    assert "gradient_accumulation_steps" in cause.fix and "expandable_segments" not in cause.fix


def test_in_a_container_the_only_process_is_not_called_another() -> None:
    cause = known(torch.OutOfMemoryError(CONTAINER))
    assert "414660" not in cause.words + cause.fix
    assert "1.66 GiB of 14.75 GiB are free; tensors hold 10.09 GiB" in cause.words
    assert "expandable_segments:True" in cause.fix, "the reserve is larger than what was asked for"


def test_of_an_old_torch() -> None:
    assert known(RuntimeError(OLD)).words == (
        "GPU 0 is out of memory: 1.69 GiB more were asked for, 1.31 GiB of 14.56 GiB are free; "
        "tensors hold 649.97 MiB"
    )


def test_numbers_that_are_not_there() -> None:
    assert known(torch.OutOfMemoryError("XPU out of memory.")).words == "the GPU is out of memory"


@pytest.mark.parametrize(("size", "says"), [(10, "batch_size (now 10)"), (1, "a smaller model")])
def test_the_batch_size_of_the_package(tmp_path: Path, size: int, says: str) -> None:
    package = project(tmp_path, data={"batch_size": size})
    assert says in known(torch.OutOfMemoryError(NEW), package.path).fix


def test_in_a_validation_its_own_batch_size_counts() -> None:
    class Runner:
        def to_device(self, batch: object) -> object:
            return batch

        def evaluate(self, batch: object) -> None:
            raise torch.OutOfMemoryError(NEW)

    class Loader:
        name = ""

        def once(self) -> Iterator[object]:
            yield Batch(torch.ones(1), 1, True)

    error = of(lambda: evaluation.run(Runner(), Loader(), "valid", stop=lambda: False))  # type: ignore[arg-type]
    assert "data.valid.batch_size" in known(error).fix


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported",
            "CUDA gives no numbers",
        ),
        (
            "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
            "probably out of memory",
        ),
        ("cuDNN error: CUDNN_STATUS_ALLOC_FAILED", "probably out of memory: CUDNN_STATUS_ALLOC_FAILED"),
    ],
)
def test_without_numbers(text: str, says: str) -> None:
    assert says in known(RuntimeError(text)).words


def test_of_the_machine_for_real() -> None:
    cause = known(of(lambda: torch.empty(10**15, dtype=torch.uint8)))
    assert re.match(
        r"the machine's memory does not suffice: 909\.49 TiB were asked for at once \(it has [\d.]+ GiB",
        cause.words,
    )
    assert "1, 100000000000000" in known(of(lambda: np.empty((1, 10**14)))).words
    assert known(of(lambda: bytearray(10**17))).words.startswith(
        "the machine's memory does not suffice (it has"
    )


@pytest.mark.parametrize(
    "error",
    [
        ValueError("CUDA out of memory."),
        RuntimeError("the disk is out of memory"),
        RuntimeError("we ran out of CUDA out of memory. errors"),
        RuntimeError("CUDA error: an illegal memory access was encountered"),
        RuntimeError("XCUBLAS_STATUS_ALLOC_FAILED2"),
        RuntimeError("CUBLAS_STATUS_EXECUTION_FAILED"),
        KeyError("MemoryError"),
    ],
)
def test_what_only_sounds_like_it(error: Exception) -> None:
    assert unknown(raised(error))


def test_how_much_was_asked_for() -> None:
    found = [memory.asked_mb(text) for text in (NEW, "Tried to allocate 20.00 MiB.", "out of memory")]
    assert found == [1.95 * 1024, 20.0, None]
