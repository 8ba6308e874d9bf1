"""Skips a step whose loss or gradient is not finite, without any change of state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from roost.train.optim.optimizer import Optim

_MAX_PACKED_BYTES = 1 << 20
"""A larger buffer takes a kernel of its own, and no third copy of its values."""


class _SavedBuffer(NamedTuple):
    """A buffer of a module before the step."""

    home: dict[str, Tensor | None]
    name: str
    tensor: Tensor | None


class _Pack:
    """Small buffers of one type on one device, as one tensor: a model with a hundred normalisations would
    launch three kernels for each of their three buffers.

    Args:
        places: Their places among all buffers.
        buffers: The buffers themselves.
    """

    def __init__(self, places: list[int], buffers: Sequence[Tensor]) -> None:
        self.places = places
        self._kept, self._kept_parts = _empty_pack(buffers)
        self._now, self._now_parts = _empty_pack(buffers)

    def keep(self, own: list[Tensor]) -> None:
        torch._foreach_copy_(self._kept_parts, own)

    def restore(self, own: list[Tensor]) -> None:
        torch._foreach_copy_(own, self._kept_parts)

    def restore_where(self, bad: Tensor, own: list[Tensor]) -> None:
        torch._foreach_copy_(self._now_parts, own)
        torch.where(bad.to(self._now.device), self._kept, self._now, out=self._now)
        torch._foreach_copy_(own, self._now_parts)


class _KeptBuffers:
    """The values of some buffers before a step.

    Args:
        buffers: The buffers of which values are kept.
    """

    def __init__(self, buffers: Sequence[Tensor]) -> None:
        self._form = _form_of(buffers)
        alike: dict[tuple[torch.device, torch.dtype], list[int]] = {}
        for place, buffer in enumerate(buffers):
            if _can_be_packed(buffer):
                alike.setdefault((buffer.device, buffer.dtype), []).append(place)
        self._packs = [_Pack(places, [buffers[place] for place in places]) for places in alike.values()]
        self._single = {
            place: torch.empty_like(one) for place, one in enumerate(buffers) if not _can_be_packed(one)
        }

    def fits(self, buffers: Sequence[Tensor]) -> bool:
        """Whether the buffers have the shapes, types and devices of those given at first."""
        return _form_of(buffers) == self._form

    def keep(self, buffers: Sequence[Tensor]) -> None:
        """Copies the values of the buffers."""
        for pack in self._packs:
            pack.keep([buffers[place] for place in pack.places])
        for place, kept in self._single.items():
            kept.copy_(buffers[place])

    def restore(self, buffers: Sequence[Tensor]) -> None:
        """Copies the values back."""
        for pack in self._packs:
            pack.restore([buffers[place] for place in pack.places])
        for place, kept in self._single.items():
            buffers[place].copy_(kept)

    def restore_where(self, bad: Tensor, buffers: Sequence[Tensor]) -> None:
        """Copies the values back if ``bad``: () a flag on a device. No synchronisation."""
        for pack in self._packs:
            pack.restore_where(bad, [buffers[place] for place in pack.places])
        for place, kept in self._single.items():
            buffer = buffers[place]
            buffer.copy_(torch.where(bad.to(buffer.device), kept, buffer))


def _form_of(buffers: Sequence[Tensor]) -> list[tuple[Any, ...]]:
    return [(type(b), b.shape, b.stride(), b.dtype, b.device) for b in buffers]


def _can_be_packed(buffer: Tensor) -> bool:
    # With equal strides on both sides torch copies a list of tensors by few kernels.
    is_small = buffer.numel() * buffer.element_size() <= _MAX_PACKED_BYTES
    return type(buffer) is Tensor and is_small and buffer.is_contiguous()


def _empty_pack(buffers: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """Returns new memory for the values of the buffers, and its parts in their shapes."""
    sizes = [buffer.numel() for buffer in buffers]
    pack = torch.empty(sum(sizes), dtype=buffers[0].dtype, device=buffers[0].device)
    parts = zip(torch.split(pack, sizes), buffers, strict=True)
    return pack, [part.view(buffer.shape) for part, buffer in parts]


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
        self._kept = _KeptBuffers([])
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
        if not self._kept.fits(self._written):
            self._kept = _KeptBuffers(self._written)
        with torch.no_grad():
            self._kept.keep(self._written)

    def restore(self) -> None:
        """Restores the buffers, if they were kept in this step."""
        for one in self._buffers:
            one.home[one.name] = one.tensor
        if self._written:
            with torch.no_grad():
                self._kept.restore(self._written)

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
        if self._written:
            with torch.no_grad():
                self._kept.restore_where(bad, self._written)
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
