from __future__ import annotations

import pytest
import torch

from roost.base.errors import Refused
from roost.project.device import choose_device, why_no_gpu


def test_devices() -> None:
    assert choose_device("cpu") == "cpu"
    best = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    assert choose_device("auto") == best
    if not torch.cuda.is_available():
        with pytest.raises(Refused, match=r"(?s)no GPU is visible.*received 'cuda:1'.*-CPU"):
            choose_device("cuda:1")


def test_why_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    assert why_no_gpu() == f"torch {torch.__version__} was built without CUDA"
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert why_no_gpu() == "CUDA_VISIBLE_DEVICES is ''"
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert "nvidia-smi" in why_no_gpu()
