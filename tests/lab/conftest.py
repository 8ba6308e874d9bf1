from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.sessions import Session


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    session = Session(tmp_path)
    yield session
    session.close()
