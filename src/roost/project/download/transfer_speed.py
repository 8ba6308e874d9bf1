"""How fast a mirror answers: from the first byte of its headers on, through redirections and to the end."""

from __future__ import annotations

import functools
import http.client
import io
import time
import urllib.request
from typing import Any

_SLOWEST_BYTES_PER_SECOND = 1024
"""A mirror that gives less than this, for as long as the window, has stalled."""
_HANDLERS = (
    urllib.request.ProxyHandler,
    urllib.request.UnknownHandler,
    urllib.request.HTTPDefaultErrorHandler,
    urllib.request.HTTPRedirectHandler,
    urllib.request.HTTPErrorProcessor,
    urllib.request.FileHandler,
)


class MirrorFailed(Exception):
    """Why a mirror did not give the file."""


class Pace:
    """Notices a mirror that lets drops through, each before the time-out of the socket."""

    def __init__(self, window_seconds: float) -> None:
        self.restart(window_seconds)

    def restart(self, window_seconds: float) -> None:
        """From now on it is asked every so many seconds what has come."""
        self._window_seconds = window_seconds
        self._since, self._bytes = time.monotonic(), 0

    def add(self, count: int) -> None:
        """So many more bytes have come.

        Raises:
            MirrorFailed: They are too few for the time that has passed.
        """
        self._bytes += count
        seconds = time.monotonic() - self._since
        if seconds < self._window_seconds:
            return
        if self._bytes < _SLOWEST_BYTES_PER_SECOND * seconds:
            raise MirrorFailed(f"stalled: {self._bytes} bytes in {seconds:.0f} s")
        self.restart(self._window_seconds)


def opener(pace: Pace) -> urllib.request.OpenerDirector:
    """Opens http, https and file; the default one knows ftp: and data: too.

    Args:
        pace: Told of each byte that comes over the network. A time-out of the socket cannot do this: urllib
            waits for headers as long as another byte of them comes before each.
    """
    made = urllib.request.OpenerDirector()
    for handler in (_Http(pace), _Https(pace), *(handler() for handler in _HANDLERS)):
        made.add_handler(handler)
    return made


class _Http(urllib.request.HTTPHandler):
    """http, with the pace watched from the first byte of the headers on."""

    def __init__(self, pace: Pace) -> None:
        super().__init__()
        self._pace = pace

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(functools.partial(_connection, http.client.HTTPConnection, self._pace), req)


class _Https(urllib.request.HTTPSHandler):
    """The same for https."""

    def __init__(self, pace: Pace) -> None:
        super().__init__()
        self._pace = pace

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(functools.partial(_connection, http.client.HTTPSConnection, self._pace), req)


def _connection(
    kind: type[http.client.HTTPConnection], pace: Pace, host: str, **arguments: Any
) -> http.client.HTTPConnection:
    made = kind(host, **arguments)
    made.response_class = functools.partial(_Response, pace)  # type: ignore[assignment]
    return made


class _Response(http.client.HTTPResponse):
    """An answer that tells the pace of every byte that comes for it."""

    def __init__(self, pace: Pace, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.fp = io.BufferedReader(_Watched(self.fp.detach(), pace))


class _Watched(io.RawIOBase):
    def __init__(self, source: io.RawIOBase, pace: Pace) -> None:
        self._source, self._pace = source, pace

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        count: int | None = self._source.readinto(buffer)
        self._pace.add(count or 0)
        return count

    def close(self) -> None:
        self._source.close()
        super().close()
