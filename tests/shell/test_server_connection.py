"""Which server a shell connects to, and what it says if it cannot."""

from __future__ import annotations

from pathlib import Path

import pytest

from roost.base.errors import NotFound, Refused, UsageError
from roost.shell import server_connection
from tests.messages import Messages
from tests.serve.servers import Server


def test_the_own_server_needs_no_token(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOST_SERVER_TOKEN", "wrong")
    for connection in (server_connection.connect(), server_connection.connect(port=server.about.port)):
        assert connection.has_own_files and connection.list_tasks() == []
        connection.close()


def test_a_wrong_token_is_refused(
    server: Server, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    monkeypatch.setenv("ROOST_SERVER_TOKEN", "wrong")
    with pytest.raises(Refused) as error:
        server_connection.connect(url=f"http://localhost:{server.about.port}")
    messages.check(error.value)


def test_without_a_server_its_start_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    monkeypatch.setenv("ROOST_STATE", str(tmp_path))
    with pytest.raises(NotFound, match="`roost server --detach`") as error:
        server_connection.connect()
    messages.check(error.value)
    with pytest.raises(NotFound, match="`roost server --detach`") as error:
        server_connection.connect(port=1)
    messages.check(error.value)


def test_the_name_of_a_host_is_explained(messages: Messages) -> None:
    for url in ("gpu-box", "gpu-box:8080", "127.0.0.1", "http://gpu-box:9999"):
        with pytest.raises(Refused) as error:
            server_connection.connect(url=url)
        messages.check(error.value)
    with pytest.raises(UsageError):
        server_connection.connect(url="http://")
