from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.serve.servers import Server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One for all tests of a file; every client finds it as its own user does."""
    own = Server(tmp_path_factory.mktemp("asked"))
    with own.lab.here():
        own.start()
        yield own
    own.close()
