"""A real S3 server (moto) behind a proxy that can do what stores do on bad days."""

from __future__ import annotations

import contextlib
import http.client
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

_HOP_HEADERS = ("transfer-encoding", "connection", "content-length", "keep-alive")
_ERROR = "<?xml version='1.0'?><Error><Code>{}</Code><Message>{}</Message></Error>"
ANSWERS = {
    "full": (507, "InsufficientStorage", "Insufficient storage: the disk of the server is full"),
    "expired": (403, "ExpiredToken", "The provided token has expired."),
    "skewed": (
        403,
        "RequestTimeTooSkewed",
        "The difference between the request time and the current time is too large.",
    ),
}
FAULTS = (*ANSWERS, "refused", "cut", "wrong bytes", "lying")


class FaultyProxy:
    """Passes requests on to a server; ``fault`` says what goes wrong with them.

    ``cut`` closes the connection in the middle of a body that is put, ``wrong bytes`` stores another byte,
    ``lying`` says that all went well and stores only the first half; ``slow`` waits for `release`.
    """

    def __init__(self, port: int) -> None:
        self.fault: str | None = None
        self.on_methods: tuple[str, ...] = ("PUT",)
        """The methods that go wrong; of ``refused`` all do."""
        self.on_path = ""
        """A part of the paths that go wrong."""
        self.seen: list[str] = []
        self.num_faults = 0
        self.arrived, self.release = threading.Event(), threading.Event()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                proxy.seen.append(f"{self.command} {self.path}")
                fault = proxy.fault
                is_hit = proxy.on_path in self.path and (
                    fault == "refused" or self.command in proxy.on_methods
                )
                if fault is not None and is_hit:
                    proxy.num_faults += 1
                    proxy.arrived.set()
                    if fault == "slow":
                        proxy.release.wait(100)
                    elif fault in ("refused", "cut"):
                        self.close_connection = True
                        return
                    elif fault == "wrong bytes" and body:
                        at = len(body) // 2
                        body = body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]
                    elif fault == "lying" and body:
                        body = body[: len(body) // 2]
                    elif fault in ANSWERS:
                        status, code, text = ANSWERS[fault]
                        self.answer(status, {}, _ERROR.format(code, text).encode())
                        return
                upstream = http.client.HTTPConnection("127.0.0.1", port, timeout=100)
                headers = {
                    name: value for name, value in self.headers.items() if name.lower() not in _HOP_HEADERS
                }
                if fault in ("wrong bytes", "lying"):  # a server that checks nothing
                    headers = {
                        name: value
                        for name, value in headers.items()
                        if not any(word in name.lower() for word in ("checksum", "md5", "sdk"))
                    }
                upstream.request(self.command, self.path, body or None, headers)
                response = upstream.getresponse()
                data = response.read()
                self.answer(response.status, dict(response.getheaders()), data)
                upstream.close()

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any

            def answer(self, status: int, headers: dict[str, str], data: bytes) -> None:
                self.send_response(status)
                length = str(len(data))
                for name, value in headers.items():
                    if self.command == "HEAD" and name.lower() == "content-length":
                        length = value
                    if name.lower() not in (*_HOP_HEADERS, "date", "server"):
                        self.send_header(name, value)
                self.send_header("content-length", length)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the proxy."""
        self.release.set()
        self._server.shutdown()
        self._server.server_close()


@contextlib.contextmanager
def s3(bucket: str = "bucket") -> Iterator[FaultyProxy]:
    """A server with an empty bucket, and the variables by which clients of this process and of programs that
    it starts reach it."""
    import boto3
    import s3fs
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    proxy = FaultyProxy(port)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("AWS_ACCESS_KEY_ID", "test")
            patch.setenv("AWS_SECRET_ACCESS_KEY", "very-secret")
            patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
            patch.setenv("AWS_ENDPOINT_URL", proxy.url)
            patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
            boto3.client("s3").create_bucket(Bucket=bucket)
            s3fs.S3FileSystem.clear_instance_cache()  # connections to the server of an earlier test
            yield proxy
    finally:
        proxy.close()
        server.stop()
