from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serve.servers import Server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One for all tests of a file: they leave it as it was."""
    own = Server(tmp_path_factory.mktemp("served"))
    own.start()
    yield own
    own.close()


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Server]:
    """One that a test may end, and starts by itself."""
    own = Server(tmp_path)
    yield own
    own.close()
