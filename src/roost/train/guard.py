"""Keeping a step whose loss or gradient is not finite from changing anything."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from roost.train.optim import Optim


class Guard:
    """Looks at the loss and the gradients of each step on their device, and lets no bad one through.

    A normalisation's running statistics have changed by the time the loss is known: they are put back.

    Args:
        module: Its buffers are kept.
        looks: Whether it looks at loss and gradients, or only keeps the buffers.
    """

    def __init__(self, module: nn.Module, *, looks: bool = True) -> None:
        self._module, self.looks = module, looks
        self.flag: Tensor | None = None
        """() whether the step that runs was bad; None while nothing was looked at."""
        self._buffers: list[Tensor] = []
        self._kept: list[Tensor] = []

    def begin(self) -> None:
        """Keeps the buffers as they are before the step. A copy on the device, no synchronisation."""
        self._buffers = [buffer for buffer in self._module.buffers() if buffer.numel()]
        if [(b.shape, b.dtype, b.device) for b in self._buffers] != [
            (b.shape, b.dtype, b.device) for b in self._kept
        ]:
            self._kept = [torch.empty_like(buffer) for buffer in self._buffers]
        if self._buffers:
            with torch.no_grad():
                torch._foreach_copy_(self._kept, self._buffers)

    def restore(self) -> None:
        """Puts the buffers back."""
        if self._buffers:
            with torch.no_grad():
                torch._foreach_copy_(self._buffers, self._kept)

    def look(self, loss: Tensor, sizes: Iterable[Tensor]) -> Tensor:
        """() whether the loss, or a gradient, is not finite; then the buffers are back. No synchronisation.

        Args:
            loss: () of this step.
            sizes: () norms of gradients.
        """
        bad = ~loss.isfinite()
        for size in sizes:
            bad = bad | ~size.isfinite().to(bad.device)
        with torch.no_grad():
            for buffer, kept in zip(self._buffers, self._kept, strict=True):
                buffer.copy_(torch.where(bad.to(buffer.device), kept, buffer))
        self.flag = bad if self.flag is None else self.flag | bad
        return bad


def move_unless(bad: Tensor, optim: Optim) -> None:
    """Lets the optimizer move, unless ``bad``.

    A fused kernel of torch reads ``bad`` by itself, the way its GradScaler tells it. Any other optimizer
    costs a synchronisation here: a step cannot be undone.
    """
    optimizer = optim.optimizer
    # Before its first step a fused SGD has no momentum yet, and would take what lies in the memory for it.
    if getattr(optimizer, "_step_supports_amp_scaling", False) and optimizer.state:
        optimizer.grad_scale, optimizer.found_inf = None, bad.float()  # type: ignore[attr-defined]
        try:
            optim.move()
        finally:
            del optimizer.grad_scale, optimizer.found_inf  # type: ignore[attr-defined]
    elif not bool(bad):
        optim.move()


def waits(optims: Sequence[Optim]) -> bool:
    """Whether `move_unless` must wait for the device in each step."""
    return not all(getattr(optim.optimizer, "_step_supports_amp_scaling", False) for optim in optims)
