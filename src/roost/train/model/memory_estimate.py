"""An estimate of the memory that a step needs, made before the first step."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from roost.base.text.byte_sizes import format_bytes
from roost.train.optim.optimizer import Optim


@dataclass(frozen=True)
class MemoryEstimate:
    """The memory of a step, in bytes."""

    parameters: int
    buffers: int
    gradients: int
    optimizers: dict[str, int | None]
    """The state of each optimizer; None: only its first step would show it."""
    activations: int | None
    """The tensors that a forward pass keeps for the backward pass; None: unknown."""

    @property
    def total(self) -> int:
        """The sum of all known parts: the least that a step needs, without the workspace of kernels."""
        known = [self.parameters, self.buffers, self.gradients, self.activations, *self.optimizers.values()]
        return sum(filter(None, known))

    def lines(self, *, num_samples: int) -> list[str]:
        """Returns lines for the output: the sum, then each part.

        Args:
            num_samples: The size of the batch whose activations were measured.
        """
        parts = {
            "weights": (self.parameters + self.buffers, ""),
            "gradients": (self.gradients, ""),
            **{f"optimizer {name}": (number, "") for name, number in self.optimizers.items()},
            "activations": (self.activations, f"  for {num_samples} samples" if self.activations else ""),
        }
        width = max(map(len, parts))
        lines = [
            f"  {name.ljust(width)}  {'unknown' if number is None else format_bytes(number)}{note}"
            for name, (number, note) in parts.items()
        ]
        return [f"memory of a step: at least {format_bytes(self.total)}", *lines]


def estimate_memory(
    module: nn.Module, optims: Mapping[str, Optim], *, activations: int | None
) -> MemoryEstimate:
    """Estimates the memory of a step.

    Args:
        module: The module with all its weights.
        optims: Its optimizers.
        activations: Bytes as measured; see `roost.train.model.model_summary.trace_forward`.
    """
    return MemoryEstimate(
        parameters=num_bytes(module.parameters()),
        buffers=num_bytes(module.buffers()),
        gradients=num_bytes(p for p in module.parameters() if p.requires_grad),
        optimizers={name: state_bytes(optim.optimizer) for name, optim in optims.items()},
        activations=activations,
    )


def num_bytes(tensors: Iterable[Tensor]) -> int:
    """Returns the bytes of the values; a tensor that occurs twice counts once."""
    unique = {id(one): one for one in tensors}
    return sum(one.numel() * one.element_size() for one in unique.values())


def state_bytes(optimizer: torch.optim.Optimizer) -> int | None:
    """Returns the bytes of an optimizer's state after its first step; None if only a real step can show
    it. A copy of the optimizer takes a step on tensors of the device "meta", which have no values."""
    if not optimizer.state:
        try:
            optimizer = _stepped_copy(optimizer)
        except Exception:  # noqa: BLE001  - any error: the size is unknown before the run
            return None
    return num_bytes(
        value for state in optimizer.state.values() for value in state.values() if torch.is_tensor(value)
    )


def _stepped_copy(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    stand_in = copy.copy(optimizer)
    stand_in.state = defaultdict(dict)
    stand_in.param_groups = [_meta_group(group) for group in optimizer.param_groups]
    with torch.no_grad():
        stand_in.step()
    return stand_in


def _meta_group(group: dict[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = {
        name: False for name in ("fused", "foreach") if name in group
    }  # one tensor at a time
    made = []
    for parameter in group["params"]:
        one = nn.Parameter(torch.empty_like(parameter, device="meta"))
        one.grad = torch.empty_like(one)
        made.append(one)
    return {**group, **plain, "params": made}
