"""A file server on loopback that counts what it is asked for and fails in every way a real one does."""

from __future__ import annotations

import contextlib
import ssl
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self


class Mirror:
    """Serves ``files`` by name. The folder in the URL says how: ``mirror.url("good")``.

    good: whole. unsized: whole, without its length. other: another content. cut: half of it, then the end.
    hold: half of it, then nothing until ``go_on`` is set. drip: a byte now and then. slow: its headers so,
    without an end. chunk: so the length of its only chunk. moved: a redirection to good. away: one to a file
    of this machine. rude: 404 with a terminal's codes. Anything else: 404.

    Args:
        files: The files by name.
        certificate: Key and certificate in one file: served by https.
    """

    def __init__(self, files: Mapping[str, bytes], certificate: Path | None = None) -> None:
        self.files = files
        self.asked: list[str] = []
        self.half_sent, self.go_on, self.closing = threading.Event(), threading.Event(), threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._scheme = "http"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
            self._scheme = "https"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    def url(self, how: str) -> str:
        """The address of the folder that serves in this way, with a slash at its end."""
        return f"{self._scheme}://127.0.0.1:{self._server.server_port}/{how}/"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.closing.set()
        self.go_on.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _handler(mirror) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                mirror.asked.append(self.path)
                _, how, name = self.path.split("/")
                data = mirror.files.get(name)
                if how in ("moved", "away"):
                    self.send_response(302)
                    self.send_header(
                        "Location", (mirror.url("good") if how == "moved" else "file:///etc/") + name
                    )
                    self.end_headers()
                elif how in ("slow", "chunk"):
                    chunked = b"Transfer-Encoding: chunked\r\n\r\n"
                    self.wfile.write(b"HTTP/1.1 200 OK\r\n" + (chunked if how == "chunk" else b"X-Long: "))
                    while not mirror.closing.is_set():
                        self._drip(b"0" * 60)
                elif how == "rude":
                    self.send_error(404, "\x1b[2JNot\x07 Found " + "x" * 2000)
                elif data is None or how not in ("good", "unsized", "other", "cut", "hold", "drip"):
                    self.send_error(404)
                else:
                    self._serve(how, data)

            def _serve(self, how: str, data: bytes) -> None:
                self.send_response(200)
                if how != "unsized":
                    self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                half = len(data) // 2
                if how == "drip":
                    self._drip(data)
                    return
                self.wfile.write(data[::-1] if how == "other" else data[:half])
                if how == "hold":
                    mirror.half_sent.set()
                    mirror.go_on.wait()
                if how not in ("other", "cut"):
                    self.wfile.write(data[half:])

            def _drip(self, data: bytes) -> None:
                for byte in data:
                    self.wfile.write(bytes([byte]))
                    if mirror.closing.wait(0.02):
                        return

            def handle(self) -> None:
                with contextlib.suppress(ConnectionError):  # a client that had enough, or was killed
                    super().handle()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        return Handler
