"""A step that is not finite changes nothing on a card: weights, buffers, state of the optimizer, scale."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from roost.train.optim.optimizer import Optim
from roost.train.step.nonfinite_check import NonfiniteGuard
from roost.train.step.stepper import Stepper
from tests.gpu.device import DEVICE
from tests.train.parts import bits

pytestmark = pytest.mark.needs_gpu
NAN = float("nan")


class Net(nn.Module):
    """With buffers of several types, sizes and orders of memory."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.norms = nn.ModuleList(nn.BatchNorm1d(8) for _ in range(4))
        self.line = nn.Linear(8, 8)
        self.register_buffer("queue", torch.rand(2**18 + 1))
        self.register_buffer("table", torch.rand(4, 5).t())

    def forward(self, x: Tensor) -> Tensor:
        for norm in self.norms:
            x = norm(x)
        for buffer in (self.queue, self.table):
            buffer.add_(1)  # type: ignore[operator]
        found: Tensor = self.line(x)
        return found


def weights_of(module: nn.Module) -> Any:
    return bits({**dict(module.named_parameters()), **dict(module.named_buffers())})


@pytest.mark.parametrize("precision", [32, "bf16", "fp16"])
@pytest.mark.parametrize("options", [{"fused": True}, {"foreach": True}], ids=["fused", "foreach"])
@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD], ids=["AdamW", "SGD"])
def test_nan_in_the_loss(kind: Any, options: dict[str, bool], precision: Any) -> None:
    module = Net().to(DEVICE)
    more = {"momentum": 0.9} if kind is torch.optim.SGD else {}
    optim = Optim(kind(module.parameters(), lr=0.1, **options, **more))
    stepper = Stepper(optim, guard=NonfiniteGuard(module), precision=precision)
    batch = torch.randn(16, 8, device=DEVICE)

    def taken(factor: float) -> Callable[[Tensor], Tensor]:
        return lambda x: 1e-3 * factor * module(x).float().square().mean()

    before = weights_of(module)
    assert float(stepper.run(taken(NAN), [batch])["skipped"]) == 1.0
    assert weights_of(module) == before, "also in the first step, which begins the optimizer's state"
    for _ in range(3):
        stepper.run(taken(1.0), [batch])
        assert weights_of(module) != before
        before, state = weights_of(module), bits(optim.optimizer.state_dict())
        assert float(stepper.run(taken(NAN), [batch])["skipped"]) == 1.0
        assert weights_of(module) == before and bits(optim.optimizer.state_dict()) == state


@pytest.mark.parametrize("options", [{"fused": True}, {"foreach": True}], ids=["fused", "foreach"])
def test_an_overflow_of_fp16_lowers_the_scale_and_changes_no_weight(options: dict[str, bool]) -> None:
    module = nn.Linear(8, 8).to(DEVICE)
    optim = Optim(torch.optim.AdamW(module.parameters(), lr=0.1, **options))
    stepper = Stepper(optim, precision="fp16")
    assert optim.scaler is not None
    batch = torch.randn(16, 8, device=DEVICE)
    assert float(stepper.run(lambda x: module(x).float().square().mean() * 1e-3, [batch])["skipped"]) == 0.0
    before, state = weights_of(module), bits(optim.optimizer.state_dict())
    scale = optim.scaler.get_scale()
    values = stepper.run(lambda x: module(x).float().square().mean() * 1e4, [batch])
    assert float(values["skipped"]) == 1.0 and optim.scaler.get_scale() == scale / 2
    assert weights_of(module) == before and bits(optim.optimizer.state_dict()) == state


@pytest.mark.parametrize("built", [True, False])
def test_after_loading_other_groups_the_next_step_is_taken(built: bool) -> None:
    """Built fused and loaded unfused, torch would assert in the next guarded step."""
    saved_module, module = nn.Linear(8, 8).to(DEVICE), nn.Linear(8, 8).to(DEVICE)
    saved = Optim(torch.optim.AdamW(saved_module.parameters(), lr=0.1, fused=not built))
    batch = torch.randn(16, 8, device=DEVICE)
    Stepper(saved).run(lambda x: saved_module(x).square().mean(), [batch])
    optim = Optim(torch.optim.AdamW(module.parameters(), lr=0.1, fused=built))
    stepper = Stepper(optim, guard=NonfiniteGuard(module))
    optim.load_state_dict(saved.state_dict())
    values = stepper.run(lambda x: module(x).square().mean(), [batch])
    assert float(values["skipped"]) == 0.0 and optim.is_fused is not built
