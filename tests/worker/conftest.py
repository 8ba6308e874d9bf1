from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
import torch

from tests.project.conftest import forgotten as forgotten  # the same projects are loaded here


@pytest.fixture
def own_signals() -> Iterator[None]:
    """Puts the handlers back that a test has replaced."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(autouse=True)
def torch_as_it_comes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A session asks things of torch, and of the environment, for its whole process; here many share one."""
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    yield
    torch.use_deterministic_algorithms(False)
    torch.utils.deterministic.fill_uninitialized_memory = True
    torch.backends.cudnn.benchmark = torch.backends.cudnn.deterministic = False
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = True
    for backend in (torch.backends.cuda, torch.backends.mkldnn):
        backend.matmul.fp32_precision = "none"
