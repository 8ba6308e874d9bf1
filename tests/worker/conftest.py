from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from roost.config import build


@pytest.fixture(autouse=True)
def forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No module of one test's project is seen by the next, and none leaves bytecode; one thread."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    threads, folder = torch.get_num_threads(), Path.cwd()
    torch.set_num_threads(1)
    yield
    os.chdir(folder)
    torch.set_num_threads(threads)
    build.forget(tmp_path)


@pytest.fixture
def own_signals() -> Iterator[None]:
    """Puts the handlers back that a test has replaced."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
