from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from roost.base.errors import Refused
from roost.serve.http import listening_sockets
from tests.messages import Messages


def test_the_local_socket_is_its_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with listening_sockets.listen_unix(tmp_path):
            mode = (tmp_path / listening_sockets.SOCKET_NAME).stat().st_mode
    finally:
        os.umask(before)
    assert stat.S_ISSOCK(mode) and stat.S_IMODE(mode) == 0o600


def test_the_socket_of_a_killed_server_is_replaced_and_that_of_a_running_one_is_not(
    tmp_path: Path, messages: Messages
) -> None:
    listening_sockets.listen_unix(tmp_path).close()
    with listening_sockets.listen_unix(tmp_path), pytest.raises(Refused) as refused:
        listening_sockets.listen_unix(tmp_path)
    messages.check(refused.value)


@pytest.mark.parametrize("what", ["file", "link", "folder"])
def test_a_path_that_is_not_a_socket_is_not_removed(tmp_path: Path, what: str, messages: Messages) -> None:
    path, other = tmp_path / listening_sockets.SOCKET_NAME, tmp_path / "other"
    other.write_text("mine")
    if what == "link":
        path.symlink_to(other)
    elif what == "file":
        path.write_text("mine")
    else:
        path.mkdir()
    with pytest.raises(Refused) as refused:
        listening_sockets.listen_unix(tmp_path)
    messages.check(refused.value)
    assert os.path.lexists(path) and other.read_text() == "mine"


def test_a_path_that_is_too_long_is_refused(tmp_path: Path, messages: Messages) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    with pytest.raises(Refused) as caught:
        listening_sockets.listen_unix(folder)
    assert "ROOST_STATE" in str(caught.value.fix)
    messages.check(caught.value.message)


def test_the_default_port_or_the_next_free_one(monkeypatch: pytest.MonkeyPatch, messages: Messages) -> None:
    with listening_sockets.listen_loopback(0) as taken:
        port = taken.getsockname()[1]
        assert taken.getsockname()[0] == "127.0.0.1" and taken.proto == socket.IPPROTO_TCP
        monkeypatch.setattr(listening_sockets, "DEFAULT_PORT", port)
        with listening_sockets.listen_loopback(None) as other:
            assert port < other.getsockname()[1] <= port + 99
        with pytest.raises(Refused) as caught, listening_sockets.listen_loopback(port):
            pass
        assert caught.value.setting == "--port" and str(port) in str(caught.value)
        messages.check(caught.value.message)
        monkeypatch.setattr(listening_sockets, "_MAX_PORTS_TRIED", 1)
        with pytest.raises(Refused) as caught, listening_sockets.listen_loopback(None):
            pass
        messages.check(str(caught.value).replace(str(port), "<port>"))
    with listening_sockets.listen_loopback(port) as again:
        assert again.getsockname()[1] == port, "it is given back"


@pytest.mark.skipif(not Path("/proc/net/if_inet6").exists(), reason="this machine has no ::1")
def test_no_other_process_can_bind_the_port_at_the_ipv6_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with listening_sockets.listen_loopback(0) as found:
            port = found.getsockname()[1]
            with pytest.raises(OSError, match="in use"):
                other.bind(("::1", port))
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("::1", port))
        other.bind(("::1", port))
        other.listen()
        with pytest.raises(Refused, match=f"--port: .*{port}"), listening_sockets.listen_loopback(port):
            pass
        monkeypatch.setattr(listening_sockets, "DEFAULT_PORT", port)
        with listening_sockets.listen_loopback(None) as next_one:
            assert next_one.getsockname()[1] > port


def test_it_is_removed_once_or_not_at_all(tmp_path: Path) -> None:
    listening_sockets.listen_unix(tmp_path).close()
    listening_sockets.remove_unix_socket(tmp_path)
    listening_sockets.remove_unix_socket(tmp_path)
    assert not list(tmp_path.iterdir())
