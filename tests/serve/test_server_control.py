from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest

from roost.base.errors import Refused, RoostError
from roost.lab.background import background_process
from roost.serve import server_control, server_presence
from roost.serve.http import listening_sockets
from tests.serve.servers import Server


def test_from_start_to_stop(alone: Server) -> None:
    found = alone.start()
    assert server_presence.find_running(alone.lab.state) == found and found.is_alive
    with alone.lab.here():
        assert server_control.stop() == found
        assert server_control.stop() is None
    assert not found.is_alive


def test_a_second_one_is_refused_and_the_first_one_stays(alone: Server) -> None:
    found = alone.start()
    with pytest.raises(Refused, match=rf"pid {found.pid}\b.*port {found.port}\b"):
        alone.start()
    assert alone.get("")["name"] == "roost"


def test_a_port_that_was_asked_for_is_that_one_or_none(alone: Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(Refused, match=f"--port: .*{port}"):
            alone.start(port)
    assert not (alone.lab.state / listening_sockets.SOCKET_NAME).exists()


def test_a_folder_that_others_may_look_into_is_refused(alone: Server) -> None:
    alone.lab.state.mkdir(parents=True)
    for mode in (0o777, 0o755):
        alone.lab.state.chmod(mode)
        with pytest.raises(Refused) as caught:
            alone.start()
        assert caught.value.fix == f"`chmod 700 {alone.lab.state}`" and not list(alone.lab.state.iterdir())
    alone.lab.state.chmod(0o700)
    (alone.lab.state / "server.token").write_text("x" * 43)
    (alone.lab.state / "server.token").chmod(0o644)
    with pytest.raises(RoostError, match=r"chmod 600 .*server\.token"):
        alone.start()


def test_a_log_that_is_a_link_is_not_followed(alone: Server, tmp_path: Path) -> None:
    alone.lab.state.mkdir(parents=True, mode=0o700)
    (tmp_path / "bashrc").write_text("mine")
    (alone.lab.state / "server.log").symlink_to(tmp_path / "bashrc")
    with pytest.raises(OSError, match="symbolic links"):
        alone.start()
    assert (tmp_path / "bashrc").read_text() == "mine"


def test_a_relative_folder_is_below_that_of_the_starting_command(alone: Server) -> None:
    path, id = alone.package("one")
    with alone.lab.here():
        alone.about = server_control.start(0, [path.parent.relative_to(alone.lab.folder)])
    assert [one["path"] for one in alone.get(f"/runs/{id}/files")] == ["request.json"]


def test_a_server_that_does_not_end_is_reported(alone: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    found = alone.start()
    os.kill(found.pid, signal.SIGSTOP)
    monkeypatch.setattr(background_process, "_END_SECONDS", 0.2)
    with pytest.raises(RoostError, match=f"pid {found.pid}") as caught:
        alone.stop()
    assert f"kill -9 {found.pid}" in str(caught.value.fix)
    monkeypatch.undo()
    os.kill(found.pid, signal.SIGCONT)


def test_its_command_line_holds_no_secret(alone: Server) -> None:
    alone.start()
    line = Path(f"/proc/{alone.about.pid}/cmdline").read_bytes().split(b"\0")
    assert b"-P" in line and alone.token.encode() not in b" ".join(line)
    assert Path(f"/proc/{alone.about.pid}/cwd").readlink() == Path("/")
