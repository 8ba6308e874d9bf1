from __future__ import annotations

import io
import pickle
import re
from typing import Any

import pytest
import torch
from torch import nn

from tests.messages import Messages
from tests.worker.causes.scenes import known, of, texts, unknown


class Thing:
    """A class of a person's own, in a file of weights."""


def saved(value: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def loading(data: bytes) -> Any:
    return of(lambda: torch.load(io.BytesIO(data), weights_only=True))


@pytest.mark.parametrize(
    ("value", "name"),
    [(Thing(), f"{__name__}.Thing"), (nn.Linear(2, 2), "torch.nn.modules.linear.Linear")],
)
def test_a_file_that_runs_code(value: object, name: str) -> None:
    cause = known(loading(saved({"a": value})))
    assert f" {name}," in cause.description and "code" in cause.description
    assert f"safe_globals([{name}])" in cause.fix and "state_dict" in cause.fix
    assert "weights_only=False" not in cause.fix, "what torch proposes first is not safe"


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("data", [b"<!DOCTYPE html>", pickle.dumps({"a": 1})])
def test_a_file_that_torch_did_not_write(data: bytes, messages: Messages) -> None:
    words = known(loading(data)).description
    assert "torch.save" in words
    messages.check(words)


def test_a_file_that_is_cut_off(messages: Messages) -> None:
    words = known(loading(saved({"a": torch.ones(100)})[:300])).description
    assert "torch.save" not in words
    messages.check(words)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_tensors_of_a_gpu() -> None:
    restore = torch.serialization.default_restore_location
    cause = known(of(lambda: restore(torch.UntypedStorage(1), "cuda:0")))
    assert "CUDA device" in cause.description and "map_location=self.device" in cause.fix


def test_another_number_of_devices() -> None:
    text = (
        "Attempting to deserialize object on CUDA device 3 but torch.cuda.device_count() is 1. "
        "Please use torch.load with map_location to map your storages to an existing device."
    )
    assert "map_location" in known(RuntimeError(text)).fix


def test_weights_of_other_sizes(messages: Messages) -> None:
    cause = known(of(lambda: nn.Linear(4, 2).load_state_dict(nn.Linear(5, 2).state_dict())))
    assert re.search(r"Linear: weight .*\[2, 5\] .*\[2, 4\]", cause.description)
    messages.check(texts(cause))


def test_weights_with_other_names(messages: Messages) -> None:
    wrapped = {f"module.{name}": value for name, value in nn.Linear(4, 2).state_dict().items()}
    cause = known(of(lambda: nn.Linear(4, 2).load_state_dict(wrapped)))
    assert ": weight, bias; " in cause.description and ": module.weight, module.bias" in cause.description
    assert "'module.'" in cause.fix
    messages.check(texts(cause))
    few = {"0.weight": torch.ones(1, 1), "0.bias": torch.ones(1)}
    layers = nn.Sequential(*(nn.Linear(1, 1) for _ in range(5)))
    cause = known(of(lambda: layers.load_state_dict(few)))
    assert re.search(r": 1\.weight, 1\.bias, 2\.weight, 2\.bias .*4 ", cause.description)
    assert "strict=False" in cause.fix


@pytest.mark.parametrize(
    "error",
    [
        pickle.UnpicklingError("invalid load key, '<'."),
        RuntimeError("PytorchStreamReader failed locating file data.pkl"),
        RuntimeError("Error(s) in loading the data"),
        ValueError("Weights only load failed."),
    ],
)
def test_what_only_sounds_like_it(error: Exception) -> None:
    assert unknown(error)
