from __future__ import annotations

from collections.abc import Iterator

import pytest

from roost.shell import local_connection, server_connection
from roost.shell.lab_connection import LabConnection
from tests.serve.servers import Server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One for all tests of a file, in whose folder and environment they run."""
    own = Server(tmp_path_factory.mktemp("shells"))
    with own.lab.here():
        own.start()
        yield own
    own.close()


@pytest.fixture(scope="module", params=["server", "local"])
def connection(request: pytest.FixtureRequest, server: Server) -> Iterator[LabConnection]:
    """The same lab, over its server and without."""
    made = server_connection.connect() if request.param == "server" else local_connection.connect()
    yield made
    made.close()
