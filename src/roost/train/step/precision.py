"""The precision of forward and backward pass: autocast, loss scaling, support by the device."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch
from torch import Tensor

from roost.base.errors import ConfigError, ContractError, TrainingError
from roost.train.accelerators.registry import accelerator_of
from roost.train.optim.optimizer import Optim

Precision = Literal[32, "bf16", "fp16"]

_DTYPES: dict[Precision, torch.dtype] = {"bf16": torch.bfloat16, "fp16": torch.float16}
_NO_AUTOCAST: AbstractContextManager[None] = nullcontext()
_MIN_SCALE = 2.0**-24
"""The smallest number of fp16. With a smaller scale all gradients of a loss vanish."""


def autocast_context(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """Returns the context of a forward pass: torch's autocast for ``bf16`` and ``fp16``. The weights remain
    float32; operations that autocast considers safe, mainly matrix products, are computed in 16 bits. The
    context can be entered repeatedly.

    Raises:
        ContractError: The precision is unknown.
    """
    if precision == 32:
        return _NO_AUTOCAST
    if precision not in _DTYPES:
        raise ContractError("the precision is unknown", received=precision, fix='use 32, "bf16" or "fp16"')
    return accelerator_of(device).autocast(_DTYPES[precision])


def make_scaler(precision: Precision, device: torch.device) -> torch.amp.GradScaler | None:
    """Returns a scaler of the loss, which keeps small gradients from vanishing in fp16 (Micikevicius et al.,
    ICLR 2018); None for precisions with the range of float32."""
    return accelerator_of(device).grad_scaler() if precision == "fp16" else None


def overflows(scaler: torch.amp.GradScaler, optims: Iterable[Optim]) -> Tensor | None:
    """Returns () 1 if a gradient was not finite when the scaler unscaled it, else 0; None without
    gradients."""
    found = [flag.reshape(()) for optim in optims for flag in _flags(scaler, optim)]
    return torch.stack([flag.to(found[0].device) for flag in found]).amax() if found else None


def skip_where(scaler: torch.amp.GradScaler, optims: Iterable[Optim], bad: Tensor) -> None:
    """Makes the scaler skip the step and lower its scale, as after an overflow, if ``bad`` is true: () a flag
    on a device. No synchronisation."""
    for optim in optims:
        for flag in _flags(scaler, optim):
            flag.copy_(torch.maximum(flag, bad.to(flag)))


def scaled_step(scaler: torch.amp.GradScaler, optim: Optim) -> None:
    """Takes the step of an optimizer with unscaled gradients, unless the scaler skips it. A synchronisation
    without a fused kernel, and when a fused SGD creates its momentum (see `Optim.begins_momentum`)."""
    flags = _flags(scaler, optim)
    if not optim.begins_momentum:
        if flags:  # scaler.step raises without any gradient
            scaler.step(optim.optimizer)
    elif not any(bool(flag) for flag in flags):
        optim.take_step()


def check_scale(scaler: torch.amp.GradScaler, name: str) -> None:
    """Checks that not all steps of an optimizer are skipped. A synchronisation; for saves.

    Raises:
        TrainingError: The scale has become so small that all further steps will be skipped.
    """
    if (scale := scaler.get_scale()) < _MIN_SCALE:
        raise TrainingError(
            f"optimizer {name!r} takes no more steps: its gradients are not finite in fp16, however small "
            f"the scale of the loss ({scale:.1e} now)",
            setting="precision",
            received="fp16",
            fix="use bf16 or 32, or find the values of the model that are NaN or infinite",
        )


def _flags(scaler: torch.amp.GradScaler, optim: Optim) -> list[Tensor]:
    """Returns (1,) for each device: whether a gradient was not finite."""
    return list(scaler._found_inf_per_device(optim.optimizer).values())


def require_supported(
    precision: Precision, device: torch.device, *, setting: str = "precision", where: object = None
) -> None:
    """Checks that the device supports the precision.

    Raises:
        ConfigError: The device does not support it.
    """
    accelerator = accelerator_of(device)
    if precision == 32 or accelerator.computes_with(_DTYPES[precision], device):
        return
    name = accelerator.model(device) or device.type
    fix = "use fp16 or 32" if precision == "bf16" and accelerator.always_has_fp16 else "use 32"
    raise ConfigError(
        f"{name} does not support {precision}", setting=setting, received=precision, where=where, fix=fix
    )
