"""A server of its own for a test, and raw requests to it: what a client library would never send, too."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from typing import Any

from roost.serve import server_control, server_presence
from roost.serve.app import PREFIX, create_app
from roost.serve.http import access_token as tokens
from roost.serve.http.request_middleware import RequestMiddleware
from roost.serve.routes.served_packages import run_id
from roost.serve.server_presence import ServerRecord
from tests.lab.labs import Lab, kill_with_watchdog

CUT_OFF = 0
"""The status of a request that was ended without an answer."""
RUN = "00000000-0000000000000000"
"""The id of a run that is not there."""


@dataclass(frozen=True)
class Reply:
    status: int
    headers: Message
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """Of a request that was not carried out."""
        return str(self.json["error"]["code"])


class Server:
    """The server of one user, with simulated cards, and one folder that it was given to show.

    Args:
        folder: Holds everything.
    """

    def __init__(self, folder: Path) -> None:
        self.lab, self.folder = Lab(folder, "sim:2x24GB"), folder
        self.root = folder / "given"
        self.root.mkdir()
        self.about: ServerRecord

    def start(self, port: int | None = 0) -> ServerRecord:
        with self.lab.here():
            self.about = server_control.start(port, [self.root])
        return self.about

    def stop(self) -> None:
        with self.lab.here():
            server_control.stop()

    def kill(self) -> None:
        """SIGKILL: it cleans nothing up, and is not restarted."""
        kill_with_watchdog(self.about)

    def close(self) -> None:
        found = server_presence.find_running(self.lab.state)
        if found is not None:
            os.kill(found.pid, signal.SIGCONT)
        self.stop()
        self.lab.close()

    @property
    def token(self) -> str:
        return tokens.read_or_create_token(self.lab.state)

    @property
    def host(self) -> str:
        return f"localhost:{self.about.port}"

    @property
    def log(self) -> str:
        return (self.lab.state / "server.log").read_text()

    def package(self, name: str) -> tuple[Path, str]:
        """A folder that it takes for a package, and its id."""
        path = self.root / name
        path.mkdir()
        (path / "request.json").write_text("{}")
        return path, run_id(path)

    def connect(self, *, local: bool = False) -> socket.socket:
        if local:
            found = socket.socket(socket.AF_UNIX)
            try:
                found.connect(str(self.lab.state / "server.sock"))
            except OSError:
                found.close()
                raise
        else:
            found = socket.create_connection(("127.0.0.1", self.about.port))
        found.settimeout(20)
        return found

    def raw(self, data: bytes | Iterable[bytes], *, local: bool = False, method: str = "GET") -> Reply:
        """Sends bytes; reads one answer, whether or not all of them were taken."""
        with self.connect(local=local) as opened:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                for piece in [data] if isinstance(data, bytes) else data:
                    opened.sendall(piece)
            try:
                return read(opened, method)
            except (
                ConnectionResetError
            ):  # it was closed with bytes of ours unread, which takes back the answer
                return Reply(CUT_OFF, Message(), b"")

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        local: bool = True,
        prefix: str = PREFIX,
        **headers: str | None,
    ) -> Reply:
        """One request; a header that is None is left out, one more comes by its name with ``_`` for ``-``."""
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        usual: dict[str, str | None] = {"host": "roost" if local else self.host}
        if body is not None:
            usual |= {"content-type": "application/json"}
        if data or method in ("POST", "PUT", "PATCH"):
            usual |= {"content-length": str(len(data))}
        given = usual | {name.replace("_", "-"): value for name, value in headers.items()}
        lines = [f"{method} {prefix}{path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in given.items() if value is not None]
        return self.raw("\r\n".join([*lines, "", ""]).encode() + data, local=local, method=method)

    def get(self, path: str, **headers: str | None) -> Any:
        """What is there; it must be there."""
        found = self.ask("GET", path, **headers)
        assert found.status == 200, found.body
        return found.json

    def follow(self, path: str, **headers: str) -> Stream:
        """A stream, over the local socket."""
        opened = self.connect(local=True)
        lines = [f"GET {PREFIX}{path} HTTP/1.1", "host: roost"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        opened.sendall("\r\n".join([*lines, "", ""]).encode())
        return Stream(opened)


class Stream:
    """Server-sent events as they come: (id, event, data). It ends when the server is gone."""

    def __init__(self, opened: socket.socket) -> None:
        self._answer = http.client.HTTPResponse(opened)
        self._opened = opened
        try:
            self._answer.begin()
        except OSError:
            self.close()
            raise
        self.status = self._answer.status

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> tuple[str, str, Any]:
        while True:
            fields: dict[str, str] = {}
            while line := self._line():
                name, _, value = line.partition(": ")
                fields[name] = value
            if "event" in fields:
                return fields.get("id", ""), fields["event"], json.loads(fields["data"])

    def close(self) -> None:
        self._answer.close()
        self._opened.close()

    def _line(self) -> str:
        try:
            line = self._answer.readline()
        except (http.client.IncompleteRead, ConnectionError):
            line = b""
        if not line.endswith(b"\n"):
            self.close()
            raise StopIteration
        return line.decode().rstrip("\n")


def read(opened: socket.socket, method: str = "GET") -> Reply:
    """One answer."""
    with http.client.HTTPResponse(opened, method=method) as answer:
        answer.begin()
        return Reply(answer.status, answer.headers, answer.read())


def everything() -> list[tuple[str, str]]:
    """(method, path) of all that the application answers; what a path names is filled in."""
    gate = create_app(token=lambda: "", port=None, log_request=lambda *_: None)
    assert isinstance(gate, RequestMiddleware)
    found = []
    for one in gate._app.routes:  # type: ignore[attr-defined]
        path = one.path.replace("{run}", RUN).replace("{task:path}", "nobody").replace("{path:path}", "a/b")
        assert "{" not in path, f"give a value here for the parameter of {one.path}"
        found += [(method, path) for method in one.methods - {"HEAD"}]
    return found
