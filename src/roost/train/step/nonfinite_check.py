"""Skips a step whose loss or gradient is not finite, without any change of state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from roost.train.optim.optimizer import Optim


class _SavedBuffer(NamedTuple):
    """A buffer of a module before the step."""

    home: dict[str, Tensor | None]
    name: str
    tensor: Tensor | None


class NonfiniteGuard:
    """Checks loss and gradients of each step on their device, and prevents a step that is not finite.

    Running statistics of normalisations have already changed when the loss is known: they are restored. A
    buffer that the step replaced by another tensor (``self.mean = ...``) is restored too, at the cost of a
    synchronisation. Changes inside sparse, quantized or nested buffers remain.

    Args:
        module: The module whose buffers are kept.
        checks_step: Whether loss and gradients are checked; False: only the buffers are kept.
    """

    def __init__(self, module: nn.Module, *, checks_step: bool = True) -> None:
        self._module, self.checks_step = module, checks_step
        self.flag: Tensor | None = None
        """() whether the running step is bad; None if nothing was checked yet."""
        self._buffers: list[_SavedBuffer] = []
        self._written: list[Tensor] = []
        """The buffers into which a step can write."""
        self._kept: list[Tensor] = []
        """The values of these buffers before the step."""

    def reset(self) -> None:
        """Drops the kept buffers and the flag, before a step begins."""
        self.flag, self._buffers, self._written = None, [], []

    def begin(self) -> None:
        """Keeps the buffers before a step. A copy on the device, no synchronisation."""
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
        """Restores the buffers, if they were kept in this step."""
        for one in self._buffers:
            one.home[one.name] = one.tensor
        if self._written:
            with torch.no_grad():
                torch._foreach_copy_(self._written, self._kept)

    def check(self, loss: Tensor, sizes: Iterable[Tensor]) -> Tensor:
        """Returns () whether the loss or a gradient is not finite; if so, the buffers are restored. No
        synchronisation, unless a buffer was replaced by another tensor.

        Args:
            loss: () the loss of this step.
            sizes: () norms of gradients.
        """
        bad = ~loss.isfinite()
        for size in sizes:
            bad = bad | ~size.isfinite().to(bad.device)
        with torch.no_grad():
            for buffer, kept in zip(self._written, self._kept, strict=True):
                buffer.copy_(torch.where(bad.to(buffer.device), kept, buffer))
        # Not selected on the device: the new tensor may also be used elsewhere, for example as a weight.
        if any(one.home.get(one.name) is not one.tensor for one in self._buffers) and bool(bad):
            self.restore()
        self.flag = bad if self.flag is None else self.flag | bad
        return bad


def _can_be_written(buffer: Tensor) -> bool:
    if buffer.layout is not torch.strided or buffer.is_quantized or buffer.is_nested or buffer.is_inference():
        return False
    if buffer.is_contiguous():
        return buffer.numel() > 0
    # In an expanded buffer several elements share memory.
    return not any(step == 0 and size > 1 for size, step in zip(buffer.shape, buffer.stride(), strict=True))


def step_unless(bad: Tensor, optim: Optim) -> None:
    """Takes the optimizer's step, unless ``bad``.

    A fused kernel of torch reads ``bad`` on the device, as it does for a GradScaler. For any other optimizer
    this is a synchronisation, because a step cannot be undone.
    """
    optimizer = optim.optimizer
    if optim.is_fused and not optim.begins_momentum:
        optimizer.grad_scale, optimizer.found_inf = None, bad.float()  # type: ignore[attr-defined]
        try:
            optim.take_step()
        finally:
            del optimizer.grad_scale, optimizer.found_inf  # type: ignore[attr-defined]
    elif not bool(bad):
        optim.take_step()


def host_waits(optims: Mapping[str, Optim], *, scales: bool, checks_step: bool) -> list[str]:
    """Returns a line for each optimizer that makes the host wait for the device in each step, and why.

    Args:
        optims: By name.
        scales: Whether a GradScaler decides which steps are skipped.
        checks_step: Whether a `NonfiniteGuard` decides that.
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
                "that can skip a step on the device, as fused Adam, AdamW, SGD and Adagrad have"
            )
    return lines
