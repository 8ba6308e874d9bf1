from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from roost.base.exception_record import record_exception
from roost.train.data.batches import Batch
from roost.train.evaluation import split_evaluation
from roost.worker.causes import memory_causes
from tests.messages import Messages
from tests.project.projects import project
from tests.worker.causes.scenes import known, of, texts, unknown

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


def test_the_numbers_of_torch(messages: Messages) -> None:
    cause = known(torch.OutOfMemoryError(NEW))
    for fact in ("GPU 0 ", "1.95 GiB", "1.58 GiB of 14.57 GiB", "734.07 MiB", "33.93 MiB", "12.02 GiB"):
        assert fact in cause.description
    assert "2493055" in cause.description and "2493055" in cause.fix
    messages.check(texts(cause))
    assert "gradient_accumulation_steps" in cause.fix and "expandable_segments" not in cause.fix


@pytest.mark.parametrize(
    ("visible", "name"), [("3", "GPU 3"), ("GPU-0123456789abcdef-7", "GPU-0123456789ab"), ("", "GPU 0")]
)
def test_the_card_is_named_as_the_machine_counts(
    monkeypatch: pytest.MonkeyPatch, visible: str, name: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert known(torch.OutOfMemoryError(NEW)).description.startswith(f"{name} is out of memory")


def test_in_a_container_the_only_process_is_not_called_another() -> None:
    cause = known(torch.OutOfMemoryError(CONTAINER))
    assert "414660" not in cause.description + cause.fix
    assert "1.66 GiB of 14.75 GiB" in cause.description and "10.09 GiB" in cause.description
    assert "expandable_segments:True" in cause.fix, "the reserve is larger than what was asked for"


def test_of_an_old_torch(messages: Messages) -> None:
    words = known(RuntimeError(OLD)).description
    assert all(fact in words for fact in ("GPU 0 ", "1.69 GiB", "1.31 GiB of 14.56 GiB", "649.97 MiB"))
    messages.check(words)


def test_numbers_that_are_not_there(messages: Messages) -> None:
    words = known(torch.OutOfMemoryError("XPU out of memory.")).description
    assert "GPU" in words and "GiB" not in words
    messages.check(words)


@pytest.mark.parametrize(
    ("size", "says"), [(10, r"data\.batch_size .*10\)"), (1, r"model.*data\.batch_size .*1 ")]
)
def test_the_batch_size_of_the_package(tmp_path: Path, size: int, says: str, messages: Messages) -> None:
    package = project(tmp_path, data={"batch_size": size})
    fix = known(torch.OutOfMemoryError(NEW), package.path).fix
    assert re.search(says, fix)
    messages.check(fix)


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

    error = of(lambda: split_evaluation.evaluate_split(Runner(), Loader(), "valid", stop=lambda: False))  # type: ignore[arg-type]
    assert "data.valid.batch_size" in known(error).fix


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported",
            "CUDA",
        ),
        (
            "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
            "CUBLAS_STATUS_ALLOC_FAILED",
        ),
        ("cuDNN error: CUDNN_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED"),
    ],
)
def test_without_numbers(text: str, says: str, messages: Messages) -> None:
    cause = known(RuntimeError(text))
    assert says in cause.description and "nvidia-smi" in cause.fix
    messages.check(texts(cause))


def test_of_the_machine_for_real() -> None:
    cause = known(of(lambda: torch.empty(10**15, dtype=torch.uint8)))
    assert re.search(r"\b909\.49 TiB .*\(.*[\d.]+ GiB", cause.description) and "data.num_workers" in cause.fix
    assert "1, 100000000000000" in known(of(lambda: np.empty((1, 10**14)))).description
    cause = known(of(lambda: bytearray(10**17)))
    assert re.search(r"\(.*[\d.]+ GiB", cause.description) and "data.num_workers" in cause.fix


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
    assert unknown(record_exception(error))


def test_how_much_was_asked_for() -> None:
    found = [
        memory_causes.requested_mb(text) for text in (NEW, "Tried to allocate 20.00 MiB.", "out of memory")
    ]
    assert found == [1.95 * 1024, 20.0, None]
