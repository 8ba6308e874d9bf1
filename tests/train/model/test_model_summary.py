"""The table of a model, and what one pass shows of it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from roost.train.model.model_summary import format_table, module_rows, trace_forward


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 3), nn.Linear(3, 1, bias=False)

    def loss(self, x: Tensor) -> Tensor:
        return self.b(self.a(x).relu()).square().mean()


def test_a_row_for_each_module() -> None:
    module = Two()
    module.b.requires_grad_(False)
    found = module_rows(module, {"a": "5x3"})
    assert [tuple(row) for row in found] == [
        ("(all)", "Two", "", 18, "some"), ("a", "Linear", "5x3", 15, "all"), ("b", "Linear", "", 3, "none"),
    ]  # fmt: skip
    assert format_table(found) == [
        "MODULE  CLASS   OUTPUT  PARAMETERS  TRAINED",
        "(all)   Two                     18  some",
        "a       Linear  5x3             15  all",
        "b       Linear                   3  none",
    ]


def test_a_deep_model_is_cut_at_a_depth() -> None:
    deep = nn.Sequential(*(nn.Sequential(*(nn.Linear(1, 1) for _ in range(9))) for _ in range(9)))
    found = module_rows(deep)
    assert [row.name for row in found] == ["(all)", *map(str, range(9))]
    assert found[1].parameters == 18 and sum(row.parameters for row in found[1:]) == found[0].parameters


def test_shared_parameters_count_once() -> None:
    module = Two()
    module.c = module.a
    assert module_rows(module)[0].parameters == 18


def test_a_pass_shows_shapes_and_what_it_keeps() -> None:
    module, x = Two(), torch.ones(5, 4)
    seen = trace_forward(module, module.loss, x)
    assert seen.shapes == {"a": "5x3", "b": "5x1"}
    # relu's output (5x3), which b's gradient needs too, and b's output (5x1) for the square: floats.
    assert seen.activations == 4 * (15 + 5)
    assert all(p.grad is None for p in module.parameters())
    assert not any(part._forward_hooks for part in module.modules())


def test_hooks_are_taken_off_after_an_error() -> None:
    module = Two()

    def fails(batch: Any) -> Tensor:
        module.a(batch)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        trace_forward(module, fails, torch.ones(1, 4))
    assert not any(part._forward_hooks for part in module.modules())
