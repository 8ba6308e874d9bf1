"""What is foretold of a step is what it takes."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import nn

from roost.train.model.memory_estimate import estimate_memory, num_bytes, state_bytes
from roost.train.optim.optimizer import Optim
from tests.messages import Messages


def stepped(optimizer: torch.optim.Optimizer, module: nn.Module) -> int:
    module(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    states: Any = optimizer.state.values()
    return num_bytes(value for state in states for value in state.values() if torch.is_tensor(value))


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("SGD", {"lr": 0.1}), ("SGD", {"lr": 0.1, "momentum": 0.9}), ("Adam", {}), ("AdamW", {"fused": True}),
        ("AdamW", {"amsgrad": True, "foreach": True}), ("RMSprop", {"momentum": 0.5}), ("Adagrad", {}),
    ],
)  # fmt: skip
def test_the_state_of_an_optimizer_is_foretold(kind: str, options: dict[str, Any]) -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    optimizer = getattr(torch.optim, kind)(module.parameters(), **options)
    weights = [p.clone() for p in module.parameters()]
    known, state = state_bytes(optimizer), len(optimizer.state)
    assert all(torch.equal(p, before) for p, before in zip(module.parameters(), weights, strict=True))
    assert all(p.grad is None for p in module.parameters())
    if kind != "Adagrad":
        assert state == 0, "its own is untouched"
    assert known == stepped(optimizer, module)


@pytest.mark.parametrize("kind", ["LBFGS", "Adafactor"])
def test_what_reads_values_only_a_step_can_tell(kind: str) -> None:
    assert state_bytes(getattr(torch.optim, kind)(nn.Linear(3, 4).parameters())) is None


def test_the_whole(messages: Messages) -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    module[0].requires_grad_(False)
    trained = [p for p in module.parameters() if p.requires_grad]
    optim = Optim(torch.optim.SGD(trained, lr=0.1, momentum=0.9))
    found = estimate_memory(module, {"main": optim}, activations=100)
    assert (found.parameters, found.buffers, found.gradients) == (4 * 24, 4 * 8 + 8, 4 * 8)
    assert found.optimizers == {"main": 4 * 8} and found.total == 96 + 40 + 32 + 32 + 100
    lines = found.lines(num_samples=7)
    assert [re.findall(r"\d+ B", line) for line in lines] == [
        ["300 B"],
        ["136 B"],
        ["32 B"],
        ["32 B"],
        ["100 B"],
    ]
    assert "main" in lines[3] and "7" in lines[4]
    messages.check("\n".join(lines))
    unknown = estimate_memory(module, {"main": Optim(torch.optim.LBFGS(trained))}, activations=None)
    lines = unknown.lines(num_samples=0)
    assert "main" in lines[-2] and all(line.endswith("unknown") for line in lines[-2:])
