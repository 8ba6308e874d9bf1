"""Where a model goes."""

from __future__ import annotations

import torch

from roost.base.errors import Refused


def choose_device(asked: str) -> str:
    """``cpu``, or with ``auto`` the best there is: cuda, mps, cpu.

    Raises:
        Refused: A device was asked for that this machine lacks.
    """
    if asked == "auto":
        if torch.cuda.is_available():
            return "cuda"
        return "mps" if torch.backends.mps.is_available() else "cpu"
    if asked.startswith("cuda") and not torch.cuda.is_available():
        fix = "use -CPU, or cpu"
        raise Refused("this machine has no CUDA device that torch can use", received=asked, fix=fix)
    return asked
