"""An error of the device keeps its class, by which the lab retries and the report explains, wherever it comes
up."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from roost.project import package_writer
from roost.train.accelerators.device_errors import breaks_device, is_device_error
from roost.train.data import fetch
from roost.train.events import Events
from roost.train.failures import failed_step
from roost.train.model.module_state import ModuleState
from roost.train.step import precision
from roost.train.weights.weight_loader import WeightFit

ASSERT = "CUDA error: device-side assert triggered\nCUDA kernel errors might be asynchronously reported"
OUT_OF_MEMORY = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has …")
ERRORS = {
    "out of memory": OUT_OF_MEMORY,
    "assert": torch.AcceleratorError(ASSERT),
    "assert, before torch 2.8": RuntimeError(ASSERT),
    "cuBLAS": RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    "cuDNN": RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"),
}


@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)
def test_an_error_of_the_device(error: Exception) -> None:
    assert is_device_error(error)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("stack expects each tensor to be equal size"),
        ValueError("CUDA error: in a text"),
        KeyError(),
    ],
)
def test_an_error_of_a_value(error: Exception) -> None:
    assert not is_device_error(error) and not breaks_device(error)


def test_out_of_memory_leaves_a_device_that_computes() -> None:
    assert not breaks_device(OUT_OF_MEMORY)
    assert breaks_device(torch.AcceleratorError(ASSERT)) and breaks_device(RuntimeError(ASSERT))
    assert not breaks_device(ERRORS["cuDNN"])


class FailsWhenRead(Tensor):
    """On the CPU; each operation raises `error`, as the first that waits for a device does."""

    error: Exception

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (Tensor.copy_, Tensor.__float__, torch.stack):
            raise cls.error
        return super().__torch_function__(func, types, args, kwargs)


def failing(value: Tensor) -> Any:
    return value.as_subclass(FailsWhenRead)


def cut_a_row() -> None:
    events = Events()
    events.put({"loss": failing(torch.tensor(1.0))})
    events.row()


def load_a_module() -> None:
    module = nn.Linear(2, 2)
    module.weight = nn.Parameter(failing(torch.zeros(2, 2)))
    ModuleState(module).load_state_dict(ModuleState(nn.Linear(2, 2)).state_dict())


def load_weights() -> None:
    module = nn.Linear(2, 2)
    module.weight = nn.Parameter(failing(torch.zeros(2, 2)))
    WeightFit(module, dict(nn.Linear(2, 2).state_dict())).load()


def read_a_metric() -> None:
    package_writer._number("loss", failing(torch.tensor(1.0)))


def collate() -> None:
    fetch.collate_samples([failing(torch.ones(1))] * 2, fetch.default_collate, object(), "train")


@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)
@pytest.mark.parametrize("read", [cut_a_row, load_a_module, load_weights, read_a_metric, collate])
def test_where_it_comes_up_it_is_not_taken_for_a_mistake(
    read: Callable[[], None], error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch itself quotes an error of `load_state_dict` in one of its own; its words remain."""
    monkeypatch.setattr(FailsWhenRead, "error", error, raising=False)
    with pytest.raises(RuntimeError) as caught:
        read()
    assert is_device_error(caught.value)


@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)
def test_a_device_that_fails_is_not_said_to_lack_a_precision(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raises(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(torch, "ones", raises)
    with pytest.raises(type(error)) as caught:
        precision.require_supported("fp16", torch.device("cpu"))
    assert caught.value is error


def test_no_step_is_skipped_after_an_assert_whatever_its_class() -> None:
    stepping: Any = SimpleNamespace(
        loader=SimpleNamespace(has_indices=True),
        ranks=SimpleNamespace(are_several=False),
        stepper=SimpleNamespace(has_stepped=False),
    )
    for error in (torch.AcceleratorError(ASSERT), RuntimeError(ASSERT)):
        assert "device cannot compute" in failed_step.why_not_skippable(stepping, [], error)
    assert failed_step.why_not_skippable(stepping, [], OUT_OF_MEMORY) == ""
