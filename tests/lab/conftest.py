from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.sessions import Session


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    session = Session(tmp_path)
    yield session
    for pid in session.living():  # a test that failed must not leave its worker to the others
        os.kill(pid, signal.SIGKILL)
    if session.child is not None:
        session.child.wait(10)
