"""The speed of a mirror, measured from the first byte of its headers, through redirections, to the end."""

from __future__ import annotations

import functools
import http.client
import io
import time
import urllib.request
from typing import Any

_SLOWEST_BYTES_PER_SECOND = 1024
"""A mirror below this speed for a whole window has stalled."""
_HANDLERS = (
    urllib.request.ProxyHandler,
    urllib.request.UnknownHandler,
    urllib.request.HTTPDefaultErrorHandler,
    urllib.request.HTTPRedirectHandler,
    urllib.request.HTTPErrorProcessor,
    urllib.request.FileHandler,
)


class MirrorFailed(Exception):
    """The reason why a mirror did not give the file."""


class TransferMonitor:
    """Detects a mirror that sends a few bytes before each time-out of the socket."""

    def __init__(self, window_seconds: float) -> None:
        self.restart(window_seconds)

    def restart(self, window_seconds: float) -> None:
        """Begins a new window."""
        self._window_seconds = window_seconds
        self._since, self._bytes = time.monotonic(), 0

    def add(self, count: int) -> None:
        """Counts ``count`` more bytes.

        Raises:
            MirrorFailed: The speed of the last window was too low.
        """
        self._bytes += count
        seconds = time.monotonic() - self._since
        if seconds < self._window_seconds:
            return
        if self._bytes < _SLOWEST_BYTES_PER_SECOND * seconds:
            raise MirrorFailed(f"stalled: {self._bytes} bytes in {seconds:.0f} s")
        self.restart(self._window_seconds)


def opener(monitor: TransferMonitor) -> urllib.request.OpenerDirector:
    """Returns an opener for http, https and file only; the default one also opens ftp: and data:.

    Args:
        monitor: Receives the number of bytes read from the network. A time-out of the socket is not enough:
            urllib waits for headers as long as another byte arrives before each time-out.
    """
    made = urllib.request.OpenerDirector()
    for handler in (_Http(monitor), _Https(monitor), *(handler() for handler in _HANDLERS)):
        made.add_handler(handler)
    return made


class _Http(urllib.request.HTTPHandler):
    """Handles http, with the speed measured from the first byte of the headers."""

    def __init__(self, monitor: TransferMonitor) -> None:
        super().__init__()
        self._monitor = monitor

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(functools.partial(_connection, http.client.HTTPConnection, self._monitor), req)


class _Https(urllib.request.HTTPSHandler):
    """Handles https likewise."""

    def __init__(self, monitor: TransferMonitor) -> None:
        super().__init__()
        self._monitor = monitor

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(functools.partial(_connection, http.client.HTTPSConnection, self._monitor), req)


def _connection(
    kind: type[http.client.HTTPConnection], monitor: TransferMonitor, host: str, **arguments: Any
) -> http.client.HTTPConnection:
    made = kind(host, **arguments)
    made.response_class = functools.partial(_Response, monitor)  # type: ignore[assignment]
    return made


class _Response(http.client.HTTPResponse):
    """A response that counts every byte it receives."""

    def __init__(self, monitor: TransferMonitor, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.fp = io.BufferedReader(_MonitoredStream(self.fp.detach(), monitor))


class _MonitoredStream(io.RawIOBase):
    def __init__(self, source: io.RawIOBase, monitor: TransferMonitor) -> None:
        self._source, self._monitor = source, monitor

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        count: int | None = self._source.readinto(buffer)
        self._monitor.add(count or 0)
        return count

    def close(self) -> None:
        self._source.close()
        super().close()
