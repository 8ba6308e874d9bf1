"""The process of the server: two sockets, one application, one log.

Started as ``python -m roost.serve.server_process FOLDER [--port N] [--ready FD]`` by
`roost.serve.server_control`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import resource
import signal
import socket
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import h11
import msgspec
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from roost.base.errors import RoostError
from roost.base.system import state_folder
from roost.lab.background import background_process
from roost.operations.responses import ErrorResponse, ProblemDetails
from roost.serve import server_presence
from roost.serve.access_log import AccessLog
from roost.serve.app import create_app
from roost.serve.http import listening_sockets
from roost.serve.http.access_token import read_or_create_token
from roost.serve.http.request_middleware import LOCAL_STATE_KEY, MAX_HEADER_BYTES, SECURITY_HEADERS
from roost.serve.routes import served_packages
from roost.serve.server_presence import ServerRecord

_HEADER_SECONDS = 30.0
_MAX_CONNECTIONS = 200
_DESCRIPTORS_PER_CONNECTION = 3
"""File descriptors that one connection may need: its socket, and the files that its request opens."""
_GRACE_SECONDS = 0.5
"""A connection that was accepted or answered more recently than this is not closed for another one: many may
arrive at once, and each should get time to send its request."""
_ACCEPT_BATCH, _BACKLOG = 16, 1024
"""The connections that asyncio accepts before it reads from any, and the length of the kernel's queue for the
others. A small batch lets a client that sends its request at once be read before the limit is reached."""
_SHUTDOWN_SECONDS = 5
_PEER_CREDENTIALS = struct.Struct("3i")
_MALFORMED_BODY = msgspec.json.encode(
    ErrorResponse(
        ProblemDetails(
            code="malformed",
            message="this is not an HTTP request",
            fix=f"send HTTP/1.1, with at most {MAX_HEADER_BYTES} bytes of headers",
        )
    )
)
_MALFORMED_HEADERS = [
    *SECURITY_HEADERS,
    (b"content-type", b"application/json"),
    (b"content-length", str(len(_MALFORMED_BODY)).encode()),
    (b"connection", b"close"),
]


class _LimitedProtocol(H11Protocol):
    """The HTTP/1.1 protocol with limits on idle connections and on their number.

    A connection without a complete request within ``_HEADER_SECONDS`` is closed. If there are too many TCP
    connections, the one that has kept the server waiting longest is closed: a client that opens hundreds
    and neither sends nor reads cannot lock out other clients.
    """

    _idle_timer: asyncio.TimerHandle | None = None
    _waiting_since = 0.0
    _is_tcp = True

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        opened = transport.get_extra_info("socket")
        self._is_tcp = opened is None or opened.family != socket.AF_UNIX
        if not self._is_tcp and _peer_uid(opened) == os.geteuid():
            self.app_state = {**self.app_state, LOCAL_STATE_KEY: True}
        self._restart_idle_timer()
        if self._is_tcp:
            self._abort_excess_connections()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        self._restart_idle_timer()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Answers bytes that are not HTTP, which never reach the application, in JSON like all other errors;
        if an answer has begun, only closes the connection."""
        if self.cycle is not None:
            self.cycle.disconnected = True
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            head = h11.Response(status_code=400, headers=_MALFORMED_HEADERS, reason=b"Bad Request")
            for event in (head, h11.Data(data=_MALFORMED_BODY), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def pause_writing(self) -> None:
        self._waiting_since = self.loop.time()
        super().pause_writing()

    @property
    def is_idle(self) -> bool:
        """Whether no request is in progress."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def waits_for_client(self) -> bool:
        """Whether the client must act next: send a request or the rest of a body, or read the answer."""
        return self.is_idle or self.cycle.more_body or self.flow.write_paused

    @property
    def is_streaming(self) -> bool:
        """Whether an answer has been started and not completed."""
        return self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete

    def _restart_idle_timer(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._waiting_since = self.loop.time()
        self._idle_timer = self.loop.call_later(_HEADER_SECONDS, self._close_if_idle)

    def _close_if_idle(self) -> None:
        if self.is_idle and not self.transport.is_closing():
            self.transport.abort()

    def _abort_excess_connections(self) -> None:
        patient = [one for one in self.connections if isinstance(one, _LimitedProtocol) and one._is_tcp]
        there = [one for one in patient if not one.transport.is_closing()]
        most = min(_MAX_CONNECTIONS, _max_descriptors() // _DESCRIPTORS_PER_CONNECTION)
        beyond = max(0, len(there) - most)
        since = self.loop.time() - (_GRACE_SECONDS if beyond <= most else 0.0)
        waiting = [
            one for one in there if one.waits_for_client and one is not self and one._waiting_since <= since
        ]
        for one in sorted(waiting, key=lambda one: one._waiting_since)[:beyond]:
            one.transport.abort()
        if len(waiting) < beyond and beyond > most:
            self.transport.abort()  # otherwise those being answered now will soon be done


def _max_descriptors() -> int:
    """Returns the number of files that this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else sys.maxsize


class _Server(uvicorn.Server):
    """A server that handles SIGINT and SIGTERM itself, and does not wait for event streams when it ends:
    their clients continue from their cursors."""

    watchdog_ended = False
    """Whether it ends because its watchdog has: no process would restart it after a kill."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        watchdog_fd = background_process.open_watchdog()
        if watchdog_fd is not None:
            loop.add_reader(watchdog_fd, self._end_without_watchdog)
        try:
            yield
        finally:
            if watchdog_fd is not None:
                loop.remove_reader(watchdog_fd)
                os.close(watchdog_fd)
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    def _end_without_watchdog(self) -> None:
        self.watchdog_ended = self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for listener in self.servers:
            listener.close()
        for one in list(self.server_state.connections):
            if isinstance(one, _LimitedProtocol) and one.is_streaming:
                one.transport.abort()
        await super().shutdown(sockets)


def serve(
    folder: Path,
    port: int | None,
    *,
    on_bound: Callable[[int], None] = lambda port: None,
    on_ready: Callable[[], None] = lambda: None,
) -> bool:
    """Serves until SIGTERM or SIGINT, or until the watchdog of this process ends. Returns whether that has
    ended.

    Args:
        folder: The lab's folder.
        port: The required port; None: the default port, or the next free one.
        on_bound: Called with the port once it is bound, before the first request is accepted.
        on_ready: Called once requests are accepted.

    Raises:
        Refused: A server is running already, the folder is not usable, or the port is in use.
        OSError: A file or socket cannot be created.
    """
    with contextlib.ExitStack() as at_the_end:
        with _private_umask():
            state_folder.prepare(folder)
            at_the_end.callback(os.close, server_presence.lock(folder))
            read_or_create_token(folder)
            local = at_the_end.enter_context(listening_sockets.listen_unix(folder))
            at_the_end.callback(listening_sockets.remove_unix_socket, folder)
            tcp = at_the_end.enter_context(listening_sockets.listen_loopback(port))
            bound = tcp.getsockname()[1]
            server_presence.write_record(folder, bound)
        on_bound(bound)
        app = create_app(
            token=lambda: read_or_create_token(folder),
            port=bound,
            log_request=AccessLog(server_presence.files(folder).log).write_request,
        )
        server = _Server(_uvicorn_config(app))
        asyncio.run(_run(server, [local, tcp], on_ready))
    return server.watchdog_ended


@contextlib.contextmanager
def _private_umask() -> Iterator[None]:
    """Gives files that are created inside only to their owner. Afterwards the umask is as before, so that
    packages get the same rights as from a terminal."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def _uvicorn_config(app: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=_LimitedProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",  # no line for every connection that does not send HTTP
        access_log=False,
        server_header=False,
        backlog=_ACCEPT_BATCH,
        proxy_headers=False,
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
    )


def _peer_uid(opened: Any) -> int:
    """Returns the user id of the process at the other end of a unix socket."""
    found = opened.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size)
    return int(_PEER_CREDENTIALS.unpack(found)[1])


async def _run(server: uvicorn.Server, sockets: Sequence[Any], on_ready: Callable[[], None]) -> None:
    serving = asyncio.ensure_future(server.serve(sockets=list(sockets)))
    while not server.started and not serving.done():
        await asyncio.sleep(0.005)
    for one in sockets:
        one.listen(_BACKLOG)  # asyncio has made the queue as short as its batch
    on_ready()
    await serving


def main(arguments: Sequence[str] | None = None) -> int:
    """Serves until a signal; returns the exit code.

    Args:
        arguments: The command line; None: that of this process.
    """
    parser = argparse.ArgumentParser(prog="roost.serve.server_process")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--port", type=int)
    parser.add_argument("--ready", type=int)
    parser.add_argument("--root", type=Path, action="append", default=[])
    options = parser.parse_args(arguments)
    served_packages.add_folders(options.root)
    starter = background_process.Starter(options.ready)
    try:
        if serve(options.folder, options.port, on_ready=starter.ready):
            background_process.become_watchdog(server_presence.files(options.folder), ServerRecord)
    except (RoostError, OSError) as error:
        return starter.failed(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
