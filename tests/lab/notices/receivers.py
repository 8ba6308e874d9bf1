"""Receivers of notices on this machine: a web server, and a mail server with TLS."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

from roost.lab.notices.notice_text import Notice
from roost.lab.notices.receivers import Receiver

NOTICE = Notice("id.7", "fail", "roost: a <b> failed", "why  exit code 7", [{"id": "id", "state": "failed"}])


class Asked(NamedTuple):
    path: str
    headers: dict[str, str]
    body: dict[str, Any]


class Web:
    """Records its requests.

    Args:
        status: What it answers.
        answer: The body of that.
    """

    def __init__(self, status: int = 200, answer: str = "ok", headers: dict[str, str] | None = None) -> None:
        self.status, self.answer, self.headers = status, answer, headers or {}
        self.asked: list[Asked] = []
        self.answers_after: threading.Event | None = None
        """If given, requests are answered only after it is set."""
        web = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                web.asked.append(Asked(self.path, dict(self.headers), json.loads(body)))
                if web.answers_after is not None:
                    web.answers_after.wait(100)
                self.send_response(web.status)
                for name, value in web.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(web.answer.encode())

            def log_message(self, *args: Any) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/hook/s3cret-path"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def receiver(self, kind: str = "webhook", **given: Any) -> Receiver:
        return Receiver(kind=kind, url=self.url, **given)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def certificate(folder: Path) -> Path:
    """A key and its certificate for this machine, in one file."""
    file = folder / "own.pem"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    subprocess.run(
        ["openssl", "req", "-x509", *key, "-days", "2", "-keyout", file, "-out", folder / "cert", *names],
        check=True,
        capture_output=True,
    )
    file.write_bytes(file.read_bytes() + (folder / "cert").read_bytes())
    return file


class Mail:
    """A mail server for one connection after the other, which asks for TLS.

    Args:
        certificate: Its own.
        at_once: TLS from the first byte, without STARTTLS.
        refuses: The commands that it refuses, with what it says then.
    """

    def __init__(self, certificate: Path, *, at_once: bool, refuses: dict[str, str] | None = None) -> None:
        self.letters: list[str] = []
        self.said: list[tuple[str, bool]] = []
        """Each line, and whether it came under TLS."""
        self.refuses, self._at_once = refuses or {}, at_once
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def receiver(self, **given: Any) -> Receiver:
        usual = {
            "kind": "mail",
            "host": "127.0.0.1",
            "port": self.port,
            "user": "ada",
            "password": "pass-w0rd",
        }
        tls = "tls" if self._at_once else "starttls"
        return Receiver(**{**usual, "tls": tls, "sender": "ada@here.org", "to": ["bob@there.org"], **given})

    def close(self) -> None:
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
                with contextlib.ExitStack() as stack:
                    self._talk(stack, connection)
            except ssl.SSLError:  # who came does not trust us
                continue
            except OSError:
                return

    def _secured(self, stack: contextlib.ExitStack, connection: socket.socket) -> socket.socket:
        return stack.enter_context(self._context.wrap_socket(connection, server_side=True))

    def _talk(self, stack: contextlib.ExitStack, connection: socket.socket) -> None:
        stack.enter_context(connection)
        if self._at_once:
            connection = self._secured(stack, connection)
        secure = self._at_once
        connection.sendall(b"220 here\r\n")
        file = stack.enter_context(connection.makefile("rb"))
        while line := file.readline().decode().strip():
            self.said.append((line, secure))
            word = line.split()[0].upper()
            if word in self.refuses:
                connection.sendall(self.refuses[word].encode() + b"\r\n")
                continue
            if word == "DATA":
                connection.sendall(b"354 say it\r\n")
                lines = []
                while (part := file.readline().decode()) != ".\r\n":
                    lines.append(part)
                self.letters.append("".join(lines))
            offers = "AUTH PLAIN LOGIN" if secure else "STARTTLS"
            answers = {
                "STARTTLS": "220 go on",
                "EHLO": f"250-here\r\n250 {offers}",
                "AUTH": "235 welcome",
                "QUIT": "221 bye",
            }
            connection.sendall(answers.get(word, "250 well").encode() + b"\r\n")
            if word == "QUIT":
                return
            if word == "STARTTLS":
                connection = self._secured(stack, connection)
                file, secure = stack.enter_context(connection.makefile("rb")), True
