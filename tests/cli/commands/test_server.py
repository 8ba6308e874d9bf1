from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import msgspec
import pytest

from roost import __version__
from roost.lab.background import daemon_presence as lab_presence
from roost.serve import server_presence
from tests.cli.programs import Terminal, roost
from tests.lab.labs import Lab
from tests.messages import Messages


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Lab]:
    own = Lab(tmp_path, "sim:2x24GB")
    with own.here():
        yield own
        roost("server", "stop")
    own.close()


def test_from_start_to_stop(here: Lab, messages: Messages) -> None:
    none = roost("server", "status")
    assert none.returncode == 3 and "`roost server --detach`" in none.stdout
    messages.check(none.stdout)
    none = roost("server", "status", "--json")
    assert none.returncode == 3 and json.loads(none.stdout) == {"running": False}
    started = roost("server", "--detach")
    assert started.returncode == 0
    status = roost("server", "status", "--json")
    found = json.loads(status.stdout)
    assert status.returncode == 0 and found["running"]
    url = f"http://localhost:{found['port']}/api/v1"
    assert (found["url"], found["socket"]) == (url, str(here.state / "server.sock"))
    assert f" {url} " in started.stderr and f"pid {found['pid']}" in started.stderr
    assert started.stderr.count("\n") == 1
    assert roost("server", "status").stdout.startswith(f"{url}  pid {found['pid']}, roost {__version__}, ")
    token = roost("server", "token").stdout.strip()
    with httpx.Client(trust_env=False) as client:

        def answer(token: str) -> int:
            return client.get(url, headers={"Authorization": f"Bearer {token}"}).status_code

        assert answer(token) == 200
        renewed = roost("server", "token", "--renew").stdout.strip()
        assert (answer(token), answer(renewed)) == (401, 200)
    again = roost("server", "--detach")
    assert again.returncode == 5 and f"pid {found['pid']}, port {found['port']}" in again.stderr
    stopped, none = roost("server", "stop").stderr, roost("server", "stop").stderr
    assert f"pid {found['pid']}" in stopped and "pid" not in none
    messages.check(stopped)
    messages.check(none)


def test_a_port_that_is_taken(here: Lab) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for more in ([], ["--detach"]):
            found = roost("server", "--port", port, *more)
            assert found.returncode == 5 and "Traceback" not in found.stderr
            assert found.stderr.startswith("error: --port: "), "and nothing before that"
            assert str(port) in found.stderr
            assert found.stderr.count(" (at ") == 0 and found.stderr.count("\n") == 1
    assert lab_presence.find_daemon(here.state) is None, "what is refused leaves nothing behind"
    for wrong in ("0", "65536", "x"):
        assert roost("server", "--port", wrong).returncode == 2


def test_without_its_lab_there_is_no_server(here: Lab) -> None:
    about = here.start()
    (here.state / "daemon.json").write_bytes(
        msgspec.json.encode(msgspec.structs.replace(about, version="0.0.1"))
    )
    found = roost("server", "--detach")
    assert found.returncode == 5 and found.stderr.startswith("error: ") and "0.0.1" in found.stderr
    assert server_presence.find_running(here.state) is None
    (here.state / "daemon.json").write_bytes(msgspec.json.encode(about))


def test_at_a_terminal_ctrl_c_ends_it(here: Lab) -> None:
    terminal = Terminal("server", cwd=here.folder)
    try:
        terminal.wait_for("http://localhost:")
        terminal.wait_for("\n")
        from tests.waiting import wait_for

        found = wait_for(lambda: server_presence.find_running(here.state))
        with httpx.Client(trust_env=False) as client:
            wait_for(lambda: _answers(client, found.port))
        terminal.wait_for("GET /api/v1 401")
        terminal.press_ctrl_c()
        code, shown = terminal.end()
        assert code == 0 and "Traceback" not in shown
    finally:
        terminal.kill()
    assert server_presence.find_running(here.state) is None and not (here.state / "server.sock").exists()


def _answers(client: httpx.Client, port: int) -> bool:
    try:
        return client.get(f"http://localhost:{port}/api/v1").status_code == 401
    except httpx.TransportError:
        return False
