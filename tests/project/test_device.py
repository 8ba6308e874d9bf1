from __future__ import annotations

import pytest
import torch

from roost.base.errors import Refused
from roost.project.device import choose_device


def test_devices() -> None:
    assert choose_device("cpu") == "cpu"
    best = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    assert choose_device("auto") == best
    if not torch.cuda.is_available():
        with pytest.raises(Refused, match=r"no CUDA device.*received 'cuda:1'.*-CPU"):
            choose_device("cuda:1")
