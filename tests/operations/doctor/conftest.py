from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test knows the folders of packages of another one."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
