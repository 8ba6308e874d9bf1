"""Where a model goes."""

from __future__ import annotations

import os

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
        raise Refused(f"no GPU is visible: {why_no_gpu()}", received=asked, fix="use -CPU, or cpu")
    return asked


def why_no_gpu() -> str:
    """Why torch sees no GPU here."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if torch.version.cuda is None and torch.version.hip is None:
        return f"torch {torch.__version__} was built without CUDA"
    if visible is not None:
        return f"CUDA_VISIBLE_DEVICES is {visible!r}"
    return "there is none, or its driver is not loaded (nvidia-smi shows it)"
