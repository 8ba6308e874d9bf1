from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from roost.base import state_tree
from roost.base.errors import CheckpointError, TrainingError
from roost.train.model.module_state import ModuleState
from tests.messages import Messages
from tests.train.parts import bits


class Everything(nn.Module):
    """Parameters, tied ones, buffers of both kinds, one that is not there yet, extra state, a frozen part."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(3, 3)
        self.tied = nn.Linear(3, 3)
        self.tied.weight = self.first.weight
        self.norm = nn.BatchNorm1d(3)
        self.register_buffer("cache", torch.zeros(2), persistent=False)
        self.register_buffer("later", None, persistent=False)
        self.extra: Any = 0

    def get_extra_state(self) -> Any:
        return {"extra": self.extra}

    def set_extra_state(self, state: Any) -> None:
        self.extra = state["extra"]


def moved() -> Everything:
    """With everything changed."""
    module = Everything()
    with torch.no_grad():
        module.first.weight.add_(1.0)
    module.norm(torch.randn(4, 3))
    module.cache = torch.arange(5.0)
    module.later = torch.ones(1, 2)
    module.extra = ("a", 1)
    module.first.bias.requires_grad_(False)
    module.norm.eval()
    return module


def through_the_codec(module: nn.Module) -> Any:
    skeleton, leaves = state_tree.pack(ModuleState(module).state_dict())
    return state_tree.unpack(skeleton, leaves)


def test_round_trip_of_everything() -> None:
    source, target = moved(), Everything()
    ModuleState(target).load_state_dict(through_the_codec(source))
    assert bits(ModuleState(target).state_dict()) == bits(ModuleState(source).state_dict())
    assert target.tied.weight is target.first.weight
    assert target.later is not None and torch.equal(target.cache, torch.arange(5.0))
    assert target.extra == ("a", 1)
    assert not target.first.bias.requires_grad and target.first.weight.requires_grad
    assert target.training and not target.norm.training


def test_what_was_frozen_here_and_not_there_is_thawed() -> None:
    source, target = Everything(), Everything()
    target.requires_grad_(False)
    target.eval()
    ModuleState(target).load_state_dict(through_the_codec(source))
    assert all(parameter.requires_grad for parameter in target.parameters())
    assert all(part.training for part in target.modules())


def test_a_hidden_buffer_of_the_same_size_stays_the_same_tensor() -> None:
    """Others may hold it."""
    source, target = Everything(), Everything()
    source.cache.add_(3.0)
    held = target.cache
    ModuleState(target).load_state_dict(through_the_codec(source))
    assert target.cache is held and torch.equal(held, torch.full((2,), 3.0))


def test_another_model_is_refused(messages: Messages) -> None:
    state = through_the_codec(nn.Linear(3, 3))
    with pytest.raises(CheckpointError, match=r"\bweight\b.*\[3, 3\].*\[3, 4\]") as refused:
        ModuleState(nn.Linear(4, 3)).load_state_dict(state)
    messages.check(refused.value)
    named = r"\bweight\b.*\[3, 3\].*\[3\].*\brunning_mean\b.*\b2\b"
    with pytest.raises(CheckpointError, match=named) as refused:
        ModuleState(nn.BatchNorm1d(3)).load_state_dict(state)
    messages.check(refused.value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_one_value_that_is_not_finite_is_found(value: float, dtype: torch.dtype) -> None:
    module = Everything().to(dtype)
    ModuleState(module).check_finite()
    with torch.no_grad():
        module.norm.weight[1] = value
    with pytest.raises(TrainingError, match=r"\bnorm\.weight\b"):
        ModuleState(module).check_finite()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_large_finite_values_are_good(dtype: torch.dtype) -> None:
    module = Everything().to(dtype)
    with torch.no_grad():
        module.first.weight.fill_(torch.finfo(dtype).max)
    ModuleState(module).check_finite()
    ModuleState(nn.ReLU()).check_finite()


def test_types_may_be_mixed_and_parameters_empty(messages: Messages) -> None:
    module = Everything()
    module.tied.double()
    module.norm.bfloat16()
    module.nothing = nn.Parameter(torch.empty(0))
    ModuleState(module).check_finite()
    with torch.no_grad():
        module.tied.bias[0] = float("nan")
        module.norm.bias[1] = float("inf")
    with pytest.raises(TrainingError, match=r"\b2\b.*tied\.bias, norm\.bias") as refused:
        ModuleState(module).check_finite()
    messages.check(refused.value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("length", [1, 7, 8, 33, 1000])
def test_nan_in_a_buffer_is_found_beside_infinities(dtype: torch.dtype, length: int) -> None:
    """Masks hold infinity; what has become NaN makes every later step NaN."""
    for place in {0, length // 2, length - 1}:
        module = Everything().to(dtype)
        module.register_buffer("mask", torch.full((length,), -float("inf"), dtype=dtype))
        ModuleState(module).check_finite()
        module.mask[place] = float("nan")
        with pytest.raises(TrainingError, match=r"\bmask\b.*persistent=False"):
            ModuleState(module).check_finite()


def test_where_nan_is_meant_it_stays_out_of_the_state_dict(messages: Messages) -> None:
    module = Everything()
    module.cache.fill_(float("nan"))
    ModuleState(module).check_finite()
    module.norm.running_var[0] = float("nan")
    module.norm.running_mean[1] = float("nan")
    with pytest.raises(TrainingError, match=r"\b2\b.*norm\.running_mean, norm\.running_var") as refused:
        ModuleState(module).check_finite()
    messages.check(refused.value)
    with torch.no_grad():
        module.norm.weight[0] = float("nan")
    with pytest.raises(TrainingError, match=r"\b1\b.*norm\.weight") as refused:
        ModuleState(module).check_finite()
    messages.check(refused.value)
