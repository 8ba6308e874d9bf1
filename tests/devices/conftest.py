from __future__ import annotations

from importlib.machinery import PathFinder
from pathlib import Path

import pytest

from tests.devices.nvidia import PYNVML, TWO, Driver


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Driver:
    """Two cards, for every process that is started from here on."""
    real = PathFinder.find_spec("pynvml")
    assert real is not None and real.origin is not None
    folder = tmp_path / "nvidia"
    folder.mkdir()
    (folder / "pynvml.py").write_text(PYNVML)
    made = Driver(folder)
    made.says(*TWO)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("TEST_PYNVML", real.origin)
    monkeypatch.setenv("TEST_DRIVER", str(made.file))
    monkeypatch.delenv("ROOST_DEVICES", raising=False)
    return made
