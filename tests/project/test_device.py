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
        with pytest.raises(Refused, match=r"(?s)device: no GPU is visible.*received 'cuda:1'.*-CPU"):
            choose_device("cuda:1")


@pytest.mark.parametrize("asked", ["gpu", "", "cuda:x", "cpu:-1"])
def test_what_is_no_device(asked: str) -> None:
    with pytest.raises(Refused, match="device: there is no such device; received"):
        choose_device(asked)


def test_what_this_machine_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(Refused, match="device: this machine has no mps"):
        choose_device("mps")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert choose_device("cuda:1") == "cuda:1" and choose_device("cuda") == "cuda"
    with pytest.raises(Refused, match="the number of GPUs here is 2, counted from 0; received 'cuda:2'"):
        choose_device("cuda:2")


def test_each_rank_has_a_card(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_device("cpu", local_rank=1) == "cpu"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert [choose_device(asked, local_rank=1) for asked in ("cuda", "auto")] == ["cuda:1", "cuda:1"]
    with pytest.raises(Refused, match="the number of GPUs here is 2, counted from 0; received 'cuda:2'"):
        choose_device("cuda", local_rank=2)


def test_why_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    assert why_no_gpu() == f"torch {torch.__version__} was built without CUDA"
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert why_no_gpu() == "CUDA_VISIBLE_DEVICES is ''"
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert "nvidia-smi" in why_no_gpu()
