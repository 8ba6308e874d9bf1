"""The numbers that forward and backward compute with."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch

from roost.base.errors import ConfigError

Precision = Literal[32, "bf16", "fp16"]

_TYPES: dict[Precision, torch.dtype] = {"bf16": torch.bfloat16, "fp16": torch.float16}
_EXACT: AbstractContextManager[None] = nullcontext()


def forward(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """The context of a forward pass: torch's autocast for ``bf16`` and ``fp16``. The weights stay float32;
    what autocast holds for safe, matrix products above all, computes in 16 bits. It may be entered again
    after it was left."""
    return torch.autocast(device.type, _TYPES[precision]) if precision in _TYPES else _EXACT


def scaler(precision: Precision, device: torch.device) -> torch.amp.GradScaler | None:
    """Scales the loss, so that small gradients do not vanish in fp16 (Micikevicius et al., ICLR 2018); None
    where the numbers have the range of float32."""
    return torch.amp.GradScaler(device.type) if precision == "fp16" else None


def require(
    precision: Precision, device: torch.device, *, setting: str = "precision", where: object = None
) -> None:
    """Makes sure that the device computes with these numbers.

    Raises:
        ConfigError: It does not; names the device.
    """
    if precision == 32 or _computes(_TYPES[precision], device):
        return
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    fix = "use fp16 or 32" if precision == "bf16" and device.type == "cuda" else "use 32"
    raise ConfigError(
        f"{name} does not compute with {precision}", setting=setting, received=precision, where=where, fix=fix
    )


def _computes(kind: torch.dtype, device: torch.device) -> bool:
    # An older GPU emulates bf16, several times slower than float32: nobody asks for that.
    if device.type == "cuda" and kind is torch.bfloat16:
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    try:
        one = torch.ones(8, 8, device=device)
        with torch.autocast(device.type, kind):
            return (one @ one).dtype is kind
    except RuntimeError:
        return False
