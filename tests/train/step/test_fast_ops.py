from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from roost.train.step import fast_ops
from tests.train.parts import bits


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))


def gradients(module: nn.Module, backward: Callable[[Tensor], object]) -> list[Tensor]:
    backward(module(torch.arange(12.0).reshape(4, 3)).square().mean())
    return [p.grad for p in module.parameters() if p.grad is not None]


@pytest.mark.parametrize("share", [None, 0.5, 1 / 3, 7.0])
def test_backward_gives_the_bits_of_torch(share: float | None) -> None:
    ours = gradients(net(), lambda loss: fast_ops.backward(loss, share))
    theirs = gradients(net(), lambda loss: (loss if share is None else loss * share).backward())
    assert len(ours) == 4
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_a_parameter_whose_gradient_is_the_very_1_that_began() -> None:
    """Only views lie between it and the loss, so clipping changes that 1: the next step needs another one."""

    def trained(backward: Callable[[Tensor], object]) -> list[float]:
        weight = nn.Parameter(torch.tensor([3.0]))
        other = nn.Parameter(torch.tensor(2.0))
        optimizer = torch.optim.SGD([weight, other], lr=0.1)
        for _ in range(5):
            optimizer.zero_grad()
            backward(weight.squeeze() + 4 * other)
            nn.utils.clip_grad_norm_([weight, other], 0.5)
            optimizer.step()
        return [weight.item(), other.item()]

    assert trained(fast_ops.backward) == trained(lambda loss: loss.backward())


def test_a_tensor_of_another_class_goes_torchs_own_way() -> None:
    called = []

    class Own(Tensor):
        def backward(self, *arguments: Any, **named: Any) -> None:
            called.append(self)

    fast_ops.backward(torch.ones(()).as_subclass(Own))
    assert len(called) == 1


def test_anomalies_are_still_found() -> None:
    module = net()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.autograd.detect_anomaly(check_nan=True), pytest.raises(RuntimeError, match="nan values"):
            fast_ops.backward(torch.sqrt(module(torch.ones(1, 3)).sum() * 0.0) * 0.0)


@pytest.mark.parametrize("scheduled", [False, True])
@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        lambda p: torch.optim.AdamW(p, lr=0.1),
        lambda p: torch.optim.AdamW(p, lr=0.1, fused=True),
        lambda p: torch.optim.Adafactor(p, lr=0.1),
    ],
    ids=["sgd", "adamw", "fused", "adafactor"],
)
def test_steps_give_the_bits_of_torch(make: Any, scheduled: bool) -> None:
    modules = net(), net()
    optimizers = [make(module.parameters()) for module in modules]
    schedulers = [torch.optim.lr_scheduler.StepLR(o, 2) for o in optimizers] if scheduled else []
    steps = [fast_ops.step_function(optimizers[0]), optimizers[1].step]
    for _ in range(5):
        for module, step in zip(modules, steps, strict=True):
            module.zero_grad()
            gradients(module, lambda loss: loss.backward())
            step()
        for scheduler in schedulers:
            scheduler.step()  # warns, which is an error here, if it does not know that the optimizer stepped
    assert bits(dict(modules[0].state_dict())) == bits(dict(modules[1].state_dict()))


def test_hooks_and_profilers_see_every_step() -> None:
    module = net()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    step = fast_ops.step_function(optimizer)
    gradients(module, lambda loss: loss.backward())
    seen = []
    step()
    handle = optimizer.register_step_pre_hook(lambda *_: seen.append("own"))
    step()
    handle.remove()
    everywhere = register_optimizer_step_post_hook(lambda *_: seen.append("global"))
    step()
    everywhere.remove()
    step()
    assert seen == ["own", "global"]
    with torch.profiler.profile() as profile:
        step()
    assert any("Optimizer.step" in event.key for event in profile.key_averages())


def test_a_replaced_step_is_called() -> None:
    optimizer = torch.optim.SGD(net().parameters(), lr=0.1)
    called = []
    before = fast_ops.step_function(optimizer)
    optimizer.step = lambda: called.append(1)  # type: ignore[method-assign, assignment]
    before()
    fast_ops.step_function(optimizer)()
    assert called == [1, 1]
