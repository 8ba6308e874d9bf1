from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from roost.config import objects


@pytest.fixture(autouse=True)
def forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No module of one test's project is seen by the next, and none leaves bytecode; one thread."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    threads, folder = torch.get_num_threads(), Path.cwd()
    torch.set_num_threads(1)
    yield
    os.chdir(folder)
    torch.set_num_threads(threads)
    objects.unload_project(tmp_path)
