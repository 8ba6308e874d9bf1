"""The numbers that forward and backward compute with."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch
from torch import Tensor

from roost.base.errors import ConfigError, ContractError, TrainingError
from roost.train.optim.optimizer import Optim

Precision = Literal[32, "bf16", "fp16"]

_DTYPES: dict[Precision, torch.dtype] = {"bf16": torch.bfloat16, "fp16": torch.float16}
_NO_AUTOCAST: AbstractContextManager[None] = nullcontext()
_MIN_SCALE = 2.0**-24
"""The smallest number of fp16. A loss that is scaled by less has no gradient left."""


def autocast_context(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """The context of a forward pass: torch's autocast for ``bf16`` and ``fp16``. The weights stay float32;
    what autocast considers safe, matrix products above all, is computed in 16 bits. It may be entered again
    after it was left.

    Raises:
        ContractError: There is no such precision.
    """
    if precision == 32:
        return _NO_AUTOCAST
    if precision not in _DTYPES:
        raise ContractError("there is no such precision", received=precision, fix='use 32, "bf16" or "fp16"')
    return torch.autocast(device.type, _DTYPES[precision])


def make_scaler(precision: Precision, device: torch.device) -> torch.amp.GradScaler | None:
    """Scales the loss, so that small gradients do not vanish in fp16 (Micikevicius et al., ICLR 2018); None
    where the numbers have the range of float32."""
    return torch.amp.GradScaler(device.type) if precision == "fp16" else None


def overflows(scaler: torch.amp.GradScaler, optims: Iterable[Optim]) -> Tensor | None:
    """() 1 where a gradient was not finite when the scaler unscaled it, else 0; None without a gradient."""
    found = [flag.reshape(()) for optim in optims for flag in _flags(scaler, optim)]
    return torch.stack([flag.to(found[0].device) for flag in found]).amax() if found else None


def skip_where(scaler: torch.amp.GradScaler, optims: Iterable[Optim], bad: Tensor) -> None:
    """Where ``bad``, () a flag on a device, is true, the scaler will keep them back and lower its scale, as
    after an overflow. No synchronisation."""
    for optim in optims:
        for flag in _flags(scaler, optim):
            flag.copy_(torch.maximum(flag, bad.to(flag)))


def scaled_step(scaler: torch.amp.GradScaler, optim: Optim) -> None:
    """Lets an optimizer whose gradients are unscaled move, unless the scaler keeps it back. A synchronisation
    where no fused kernel does it, and when a fused SGD makes its momentum (see `Optim.begins_momentum`)."""
    flags = _flags(scaler, optim)
    if not optim.begins_momentum:
        if flags:  # without any gradient scaler.step raises
            scaler.step(optim.optimizer)
    elif not any(bool(flag) for flag in flags):
        optim.move()


def check_scale(scaler: torch.amp.GradScaler, name: str) -> None:
    """Makes sure that the steps of an optimizer are not all kept back. A synchronisation; for saves.

    Raises:
        TrainingError: The scale has become so small that it will never again let one through.
    """
    if (scale := scaler.get_scale()) < _MIN_SCALE:
        raise TrainingError(
            f"optimizer {name!r} no longer moves: its gradients are not finite in fp16, however small the "
            f"loss is scaled (by {scale:.1e} now)",
            setting="precision",
            received="fp16",
            fix="use bf16 or 32, or look for what has become NaN or infinite in the model",
        )


def _flags(scaler: torch.amp.GradScaler, optim: Optim) -> list[Tensor]:
    """(1,) per device: whether a gradient was not finite."""
    return list(scaler._found_inf_per_device(optim.optimizer).values())


def require_supported(
    precision: Precision, device: torch.device, *, setting: str = "precision", where: object = None
) -> None:
    """Makes sure that the device computes with these numbers.

    Raises:
        ConfigError: It does not; names the device.
    """
    if precision == 32 or _is_supported(_DTYPES[precision], device):
        return
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    fix = "use fp16 or 32" if precision == "bf16" and device.type == "cuda" else "use 32"
    raise ConfigError(
        f"{name} does not compute with {precision}", setting=setting, received=precision, where=where, fix=fix
    )


def _is_supported(kind: torch.dtype, device: torch.device) -> bool:
    # An older GPU emulates bf16, several times slower than float32: nobody asks for that.
    if device.type == "cuda" and kind is torch.bfloat16:
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    try:
        one = torch.ones(8, 8, device=device)
        with torch.autocast(device.type, kind):
            return (one @ one).dtype is kind
    except RuntimeError:
        return False
