from __future__ import annotations

import os
from pathlib import Path

import pytest

from roost.api import server_address
from roost.base.errors import NotFound, Refused, UsageError
from roost.serve import server_presence
from roost.serve.http import access_token, listening_sockets
from roost.serve.http import access_token as tokens
from tests.messages import Messages


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ROOST_STATE", str(tmp_path))
    monkeypatch.delenv("ROOST_SERVER_TOKEN", raising=False)
    return tmp_path / "lab"


def test_without_a_url_it_is_the_socket_of_this_user(state: Path, messages: Messages) -> None:
    assert server_address.find(None, None) == server_address.ServerAddress(
        "http://roost", state / "server.sock", None
    )
    assert (server_address.SOCKET, server_address.TOKEN) == (
        listening_sockets.SOCKET_NAME,
        access_token.TOKEN_NAME,
    )
    with pytest.raises(UsageError) as refused:
        server_address.find(None, "secret")
    assert "secret" not in str(refused.value)
    messages.check(refused.value)


def test_the_token_is_the_given_one_or_the_environments_or_the_files(
    state: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    url = "http://localhost:9999/"
    with pytest.raises(NotFound, match="ROOST_SERVER_TOKEN") as refused:
        server_address.find(url, None)
    messages.check(refused.value)
    made = tokens.read_or_create_token(state)
    server_presence.lock(state)  # until this process ends
    server_presence.write_record(state, 9999)
    assert server_address.find(url, None) == server_address.ServerAddress("http://localhost:9999", None, made)
    monkeypatch.setenv("ROOST_SERVER_TOKEN", "environment")
    assert server_address.find(url, None).token == "environment"
    assert server_address.find(url, "given").token == "given"
    assert "given" not in repr(server_address.find(url, "given"))


@pytest.mark.parametrize(
    "url",
    ["http://localhost:9998", "http://localhost", "https://localhost:9999", "http://127.0.0.2:9999"],
)
def test_the_token_of_the_file_is_for_the_own_server_alone(state: Path, url: str, messages: Messages) -> None:
    tokens.read_or_create_token(state)
    server_presence.lock(state)  # until this process ends
    server_presence.write_record(state, 9999)
    with pytest.raises(NotFound, match=r"\b9999\b") as refused:
        server_address.find(url, None)
    messages.check(refused.value)


def test_a_port_whose_server_is_gone_may_be_anybodys(state: Path, messages: Messages) -> None:
    tokens.read_or_create_token(state)
    server_presence.write_record(state, 9999)
    about = state / server_address.ABOUT
    about.write_text(about.read_text().replace(f'"pid":{os.getpid()}', f'"pid":{2**22 + 1}'))
    with pytest.raises(NotFound, match="ROOST_SERVER_TOKEN") as refused:
        server_address.find("http://localhost:9999", None)
    messages.check(refused.value)


def test_a_token_that_others_may_read_is_not_used(state: Path) -> None:
    tokens.read_or_create_token(state)
    (state / "server.token").chmod(0o644)
    with pytest.raises(Refused, match="chmod 600"):
        server_address.find("http://localhost:9999", None)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1", "http://[::1]:1", "http://localhost", "https://gpu.example"]
)
def test_where_a_token_may_go(url: str) -> None:
    assert server_address.find(url, "t").url == url


def test_a_url_may_be_as_the_server_tells_it() -> None:
    for url in ("http://localhost:9999", "http://localhost:9999/", "http://localhost:9999/api/v1"):
        assert server_address.find(url, "t").url == "http://localhost:9999"


@pytest.mark.parametrize("url", ["http://gpu:9999", "http://10.0.0.1", "http://localhost.evil.example:9999"])
def test_where_a_token_may_not_go(url: str, messages: Messages) -> None:
    with pytest.raises(Refused, match="ssh -L") as refused:
        server_address.find(url, "t")
    messages.check(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        *(
            "localhost:9999",
            "ftp://localhost",
            "http://",
            "http://a:b@localhost",
            "http://localhost/?x=1",
            "",
        ),
        *("http://[::1", "http://localhost:x", "http://localhost:99999", "http://localhost:0"),
        *("http://localhost/\n", "http://local host"),
    ],
)
def test_what_is_no_url_of_a_server(url: str) -> None:
    with pytest.raises(UsageError) as refused:
        server_address.find(url, "t")
    assert refused.value.setting == "url"


@pytest.mark.parametrize(
    "secret", ["é" * 40, "se cret", "secret\nfoo: bar", "secret\0", "\ud800", "s" * 2000]
)
def test_what_is_no_token_is_told_to_nobody(secret: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(given: str | None) -> None:
        with pytest.raises(UsageError) as raised:
            server_address.find("http://localhost:9999", given)
        assert raised.value.setting == "token"
        assert secret not in str(raised.value) and repr(secret)[1:-1] not in str(raised.value)

    refused(secret)
    if secret.isascii() and "\0" not in secret:
        monkeypatch.setenv("ROOST_SERVER_TOKEN", secret)
        refused(None)
