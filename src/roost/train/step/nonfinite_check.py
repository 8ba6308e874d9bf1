"""Keeping a step whose loss or gradient is not finite from changing anything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from roost.train.optim.optimizer import Optim


class _SavedBuffer(NamedTuple):
    """A buffer as it stood in its module before the step."""

    home: dict[str, Tensor | None]
    name: str
    tensor: Tensor | None


class NonfiniteGuard:
    """Looks at the loss and the gradients of each step on their device, and lets no bad one through.

    A normalisation's running statistics have changed by the time the loss is known: they are put back. So is
    a buffer that the step has made another tensor (``self.mean = ...``), at the price of a synchronisation.
    What is written into a sparse, quantized or nested one stays.

    Args:
        module: Its buffers are kept.
        looks: Whether it looks at loss and gradients, or only keeps the buffers.
    """

    def __init__(self, module: nn.Module, *, checks_step: bool = True) -> None:
        self._module, self.checks_step = module, checks_step
        self.flag: Tensor | None = None
        """() whether the step that runs was bad; None while nothing was looked at."""
        self._buffers: list[_SavedBuffer] = []
        self._written: list[Tensor] = []
        """Those of them into which a step can write."""
        self._kept: list[Tensor] = []
        """What these held."""

    def reset(self) -> None:
        """A step begins: nothing of it was kept yet, and nothing looked at."""
        self.flag, self._buffers, self._written = None, [], []

    def begin(self) -> None:
        """Keeps the buffers as they are before the step. A copy on the device, no synchronisation."""
        self._buffers = [
            _SavedBuffer(module._buffers, name, buffer)
            for module in self._module.modules()
            for name, buffer in module._buffers.items()
        ]
        tensors = [one.tensor for one in self._buffers if one.tensor is not None]
        self._written = [tensor for tensor in tensors if _can_be_written(tensor)]
        if [(b.shape, b.dtype, b.device) for b in self._written] != [
            (b.shape, b.dtype, b.device) for b in self._kept
        ]:
            self._kept = [torch.empty_like(buffer) for buffer in self._written]
        if self._written:
            with torch.no_grad():
                torch._foreach_copy_(self._kept, self._written)

    def restore(self) -> None:
        """Puts the buffers back, if they were kept since the step began."""
        for one in self._buffers:
            one.home[one.name] = one.tensor
        if self._written:
            with torch.no_grad():
                torch._foreach_copy_(self._written, self._kept)

    def check(self, loss: Tensor, sizes: Iterable[Tensor]) -> Tensor:
        """() whether the loss, or a gradient, is not finite; then the buffers are back. No synchronisation,
        unless one of them is another tensor now.

        Args:
            loss: () of this step.
            sizes: () norms of gradients.
        """
        bad = ~loss.isfinite()
        for size in sizes:
            bad = bad | ~size.isfinite().to(bad.device)
        with torch.no_grad():
            for buffer, kept in zip(self._written, self._kept, strict=True):
                buffer.copy_(torch.where(bad.to(buffer.device), kept, buffer))
        # Not chosen on the device: the new tensor may be somebody else's too, such as a weight, and stay so.
        if any(one.home.get(one.name) is not one.tensor for one in self._buffers) and bool(bad):
            self.restore()
        self.flag = bad if self.flag is None else self.flag | bad
        return bad


def _can_be_written(buffer: Tensor) -> bool:
    if buffer.layout is not torch.strided or buffer.is_quantized or buffer.is_nested or buffer.is_inference():
        return False
    if buffer.is_contiguous():
        return buffer.numel() > 0
    # Of an expanded one several elements are the same memory.
    return not any(step == 0 and size > 1 for size, step in zip(buffer.shape, buffer.stride(), strict=True))


def step_unless(bad: Tensor, optim: Optim) -> None:
    """Lets the optimizer move, unless ``bad``.

    A fused kernel of torch reads ``bad`` by itself, the way its GradScaler tells it. Any other optimizer
    costs a synchronisation here: a step cannot be undone.
    """
    optimizer = optim.optimizer
    if optim.is_fused and not optim.begins_momentum:
        optimizer.grad_scale, optimizer.found_inf = None, bad.float()  # type: ignore[attr-defined]
        try:
            optim.move()
        finally:
            del optimizer.grad_scale, optimizer.found_inf  # type: ignore[attr-defined]
    elif not bool(bad):
        optim.move()


def host_waits(optims: Mapping[str, Optim], *, scales: bool, checks_step: bool) -> list[str]:
    """Which optimizers make the host wait for the device in each step, and why; a line for each.

    Args:
        optims: By name.
        scales: Whether a GradScaler tells them which step is kept back.
        looks: Whether a `NonfiniteGuard` does.
    """
    lines = []
    for name, optim in optims.items():
        kind = type(optim.optimizer).__name__
        if optim.needs_closure:
            lines.append(f"optimizer {name!r}: {kind} waits for the loss several times in each step")
        elif (scales or checks_step) and not optim.is_fused:
            why = "precision fp16" if scales else "on_non_finite skip and rollback"
            lines.append(
                f"optimizer {name!r}: with {why} each step waits for the device: {kind} here has no kernel "
                "that sees for itself whether it is kept back, as fused Adam, AdamW, SGD and Adagrad have"
            )
    return lines
