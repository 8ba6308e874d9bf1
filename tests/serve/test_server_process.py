from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from roost.base.system import process_identity
from roost.serve import server_presence, server_process
from tests.lab.labs import kill_watchdog
from tests.serve.servers import Server, read
from tests.waiting import wait_for

PROGRAM = Path(__file__).with_name("programs.py")


@contextmanager
def limited(server: Server, *limits: str) -> Iterator[Server]:
    """The process with other limits; it is killed at the end."""
    ready, its = os.pipe()
    server.lab.state.mkdir(parents=True, mode=0o700)
    arguments = [str(server.lab.state), "--port", "0", "--ready", str(its)]
    with server.lab.here(), (server.folder / "log").open("wb") as log:
        program = [sys.executable, str(PROGRAM), *limits, *arguments]
        child = subprocess.Popen(program, pass_fds=[its], stdout=log, stderr=log)
    os.close(its)
    try:
        assert os.read(ready, 16) == b"ready\n"
        found = server_presence.find_running(server.lab.state)
        assert found is not None
        server.about = found
        yield server
    finally:
        os.close(ready)
        child.kill()
        child.wait()


def closed(opened: socket.socket) -> bytes:
    """What comes until the other side has closed."""
    found = b""
    try:
        while piece := opened.recv(65536):
            found += piece
    except ConnectionResetError:
        pass
    return found


def test_slow_connections_are_closed(alone: Server) -> None:
    with (
        limited(alone, "process._HEADER_SECONDS=0.5", "middleware.BODY_SECONDS=0.5") as server,
        ExitStack() as held,
    ):
        head = f"GET /api/v1 HTTP/1.1\r\nhost: {server.host}\r\n".encode()
        silent = held.enter_context(server.connect())
        slow = held.enter_context(server.connect())
        slow.sendall(head)
        second = held.enter_context(server.connect())
        second.sendall(head + b"\r\n")
        assert read(second).status == 401
        second.sendall(head)
        body = held.enter_context(server.connect())
        post = (
            f"POST /api/v1/runs HTTP/1.1\r\nhost: {server.host}\r\nauthorization: Bearer {server.token}\r\n"
        )
        body.sendall(f"{post}content-type: application/json\r\ncontent-length: 10\r\n\r\n{{".encode())
        late = read(body)
        assert (late.status, late.code) == (408, "slow")
        assert closed(silent) == closed(slow) == closed(second) == b""
        assert server.get("")["name"] == "roost"


def test_hundreds_of_idle_connections_do_not_lock_out_others(alone: Server) -> None:
    with limited(alone, "process._MAX_CONNECTIONS=20") as server, ExitStack() as held:
        silent = [held.enter_context(server.connect()) for _ in range(100)]
        good = {"authorization": f"Bearer {server.token}"}
        for _ in range(30):
            assert server.get("")["name"] == "roost"
            assert server.ask("GET", "", local=False, **good).status == 200
        assert closed(silent[0]) == b""

        assert len(list(Path(f"/proc/{server.about.pid}/fd").iterdir())) < 60
        # Those who are being answered are not quiet: they stay.
        stream = held.enter_context(server.connect())
        asked = f"GET /api/v1/events/follow HTTP/1.1\r\nhost: {server.host}\r\n"
        stream.sendall(f"{asked}authorization: Bearer {server.token}\r\n\r\n".encode())
        assert stream.recv(100).startswith(b"HTTP/1.1 200")
        for _ in range(60):
            held.enter_context(server.connect())
        assert server.ask("GET", "", local=False, **good).status == 200
        stream.setblocking(False)
        try:
            while stream.recv(65536):
                continue
            raise AssertionError("the stream was closed")
        except BlockingIOError:
            pass


def test_with_few_descriptors_fewer_connections_are_kept(alone: Server) -> None:
    with limited(alone) as server, ExitStack() as held:
        resource.prlimit(server.about.pid, resource.RLIMIT_NOFILE, (64, 64))
        for _ in range(150):
            held.enter_context(server.connect())
        for _ in range(3):
            good = {"authorization": f"Bearer {server.token}"}
            assert server.ask("GET", "/tasks", local=False, **good).status == 200


def test_it_listens_on_this_machine_alone(server: Server) -> None:
    """By the tables of the kernel: all sockets of the process that listen."""
    found = Path(f"/proc/{server.about.pid}/fd")
    own = {str(one.readlink()) for one in found.iterdir() if one.is_symlink()}
    listening = []
    for table in ("tcp", "tcp6", "udp", "udp6"):
        path = Path(f"/proc/{server.about.pid}/net/{table}")
        rows = [line.split() for line in path.read_text().splitlines()[1:]] if path.exists() else []
        listening += [row[1] for row in rows if f"socket:[{row[9]}]" in own and row[3] in ("0A", "07")]
    assert listening == [f"0100007F:{server.about.port:04X}"]


def test_the_token_is_nowhere_but_in_its_file(server: Server) -> None:
    token = server.token.encode()
    for path in ("/runs", "/tasks", "/nothing", "/events"):
        server.ask("GET", path, local=False, authorization=f"Bearer {server.token}")
        server.ask("GET", f"{path}?token={server.token}", local=False)
        server.ask("POST", path, {"name": server.token}, local=False, authorization=f"Bearer {server.token}")
    server.lab.wait_for(server.lab.submit("env"))
    files = [path for path in server.folder.rglob("*") if path.is_file() and path.name != "server.token"]
    assert len(files) > 5 and not [path for path in files if token in path.read_bytes()]
    for entry in Path("/proc").glob("[0-9]*"):
        for name in ("cmdline", "environ"):
            try:
                assert token not in entry.joinpath(name).read_bytes()
            except OSError:
                continue


def test_its_files_are_its_owners_with_any_umask(alone: Server) -> None:
    before = os.umask(0)
    try:
        alone.start()
    finally:
        os.umask(before)
    alone.get("/runs")
    asked = {"command": ["true"], "folder": str(alone.folder), "gpus": 0, "begin": "+1h"}
    (queued,) = alone.ask("POST", "/commands", asked).json["queued"]
    rights = {name: (Path(queued["path"]) / name).stat().st_mode & 0o777 for name in (".", "request.json")}
    assert rights == {".": 0o777, "request.json": 0o644}, "as one that is made at this terminal"
    modes = {path.name: path.lstat().st_mode & 0o777 for path in alone.lab.state.glob("server*")}
    assert {*modes} == {"server.json", "server.lock", "server.log", "server.sock", "server.token"}
    assert {*modes.values()} == {0o600} and alone.lab.state.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_at_a_signal_and_leaves_no_socket(alone: Server, number: signal.Signals) -> None:
    alone.start()
    stream = alone.follow("/events/follow")
    os.kill(alone.about.pid, number)
    wait_for(lambda: not alone.about.is_alive, 4)
    assert list(stream) == [], "who follows is not waited for"
    assert not (alone.lab.state / "server.sock").exists()
    assert "Traceback" not in alone.log


def test_a_killed_one_is_followed_by_another(alone: Server) -> None:
    first = alone.start()
    token = alone.token
    alone.kill()
    assert (alone.lab.state / "server.sock").exists()
    assert alone.start().pid != first.pid
    assert alone.get("")["name"] == "roost" and alone.token == token


def test_a_new_token_counts_at_once_and_the_old_one_no_more(server: Server) -> None:
    from roost.serve.http import access_token

    old = server.token
    new = access_token.renew_token(server.lab.state)
    found = [server.ask("GET", "", local=False, authorization=f"Bearer {one}").status for one in (old, new)]
    assert found == [401, 200]


NO_HTTP = {
    "garbage": [b"\x16\x03\x01\0\xa5\r\n\r\n"],
    "no version": [b"GET /\r\n\r\n"],
    "no host": [b"GET /api/v1 HTTP/1.1\r\n\r\n"],
    "no path": [b"GET /\xff HTTP/1.1\r\nhost: roost\r\n\r\n"],
    "no chunk": [
        b"POST /api/v1/runs HTTP/1.1\r\nhost: roost\r\ncontent-type: application/json\r\n",
        b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n",
        b"zz\r\n",
    ],
}


@pytest.mark.parametrize("what", NO_HTTP)
def test_bytes_that_are_not_http_are_answered_in_json(server: Server, what: str) -> None:
    found = server.raw(NO_HTTP[what], local=True)
    assert (found.status, found.code) == (400, "malformed")
    assert (
        found.headers["content-type"] == "application/json" and found.headers["cache-control"] == "no-store"
    )
    assert "Traceback" not in server.log and server.get("")["name"] == "roost"


def test_bytes_after_an_answer_that_are_not_http_end_the_connection(server: Server) -> None:
    head = b"POST /api/v1/runs HTTP/1.1\r\nhost: evil\r\ncontent-type: application/json\r\n"
    with server.connect(local=True) as opened:
        opened.sendall(head + b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n")
        assert read(opened).status == 403
        opened.sendall(b"zz\r\n")
        assert closed(opened) == b""
    assert "Traceback" not in server.log


def test_its_log_is_a_line_of_each_request(server: Server) -> None:
    server.ask("GET", "/tasks/%1b%5B2J%0aFAKE%e2%80%ae/why?secret=1")
    server.ask("GET", "/" + "x" * 3000)
    lines = server.log.splitlines()
    assert any("GET /api/v1/tasks/\\x1b[2J\\nFAKE\\u202e/why 422" in line for line in lines)
    assert "secret=1" not in server.log and max(map(len, lines)) < 260


@pytest.mark.parametrize("damage", ["token", "folder", "lock", "about", "socket"])
def test_it_says_why_it_does_not_start(
    tmp_path: Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "lab"
    folder.mkdir(mode=0o700)
    (tmp_path / "other").write_text("mine")
    if damage == "folder":
        folder.chmod(0o777)
    elif damage == "token":
        (folder / "server.token").write_text("x" * 43)
        (folder / "server.token").chmod(0o644)
    else:
        name = {"lock": "server.lock", "about": "server.json", "socket": "server.sock"}[damage]
        (folder / name).mkdir()
    code = server_process.main([str(folder), "--port", "0"])
    said = capsys.readouterr().err
    assert code != 0 and said.startswith("roost: ") and "Traceback" not in said
    assert damage not in ("folder", "token") or ("chmod" in said and code == 5)
    assert not (folder / "server.sock").is_socket()


def test_one_whose_watchdog_is_killed_continues_under_a_new_one(alone: Server) -> None:
    before = alone.start()
    kill_watchdog(before)
    wait_for(lambda: server_presence.find_running(alone.lab.state) not in (None, before))
    now = server_presence.find_running(alone.lab.state)
    assert now is not None
    stat = process_identity.read_stat(now.pid)
    assert stat is not None and stat.parent_pid == before.pid
    alone.stop()
    assert not now.is_alive and not before.is_alive
