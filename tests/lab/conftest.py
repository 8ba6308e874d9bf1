from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.labs import Lab
from tests.supervisor.real_sessions import Session


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    session = Session(tmp_path)
    yield session
    session.close()


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path)
    yield lab
    lab.close()
