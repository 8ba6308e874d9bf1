"""A transfer over http or https that gives up a slow mirror."""

from __future__ import annotations

import ssl
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx

from roost import __version__
from roost.base.errors import RoostError
from roost.base.traceback_frames import single_line

_ANSWER_TIMEOUTS = 3
"""The number of time-outs until the answer must have begun, connections and redirections included."""
_SLOWEST_BYTES_PER_SECOND = 1024
"""A mirror below this speed for a whole window has stalled."""


@contextmanager
def opened(url: str, timeout_seconds: float) -> Iterator[tuple[int | None, Iterator[bytes]]]:
    """Opens a URL; gives the size that the server names, and the bytes as they arrive.

    Raises:
        RoostError: The server does not answer, refuses, or stops, here or while the bytes are read.
    """
    monitor, total = TransferMonitor(_ANSWER_TIMEOUTS * timeout_seconds), None
    client = httpx.Client(
        headers={"User-Agent": f"roost/{__version__}", "Accept-Encoding": "identity"},
        timeout=timeout_seconds,
        follow_redirects=True,
        transport=_SystemTransport(),
    )
    try:
        with client, client.stream("GET", url, extensions={"trace": monitor.observe_connection}) as answer:
            if not answer.is_success:
                raise RoostError(single_line(f"{answer.status_code} {answer.reason_phrase}"))
            said = answer.headers.get("Content-Length", "")
            total = int(said) if said.isdecimal() else None
            monitor.restart(timeout_seconds)
            yield total, answer.iter_raw()
    except httpx.TimeoutException:
        raise RoostError(f"silent for {timeout_seconds:g} s") from None
    except httpx.UnsupportedProtocol as error:
        raise RoostError(f"redirects to {error.request.url.scheme}://, not to http or https") from None
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError, ImportError) as error:
        if isinstance(error, httpx.RemoteProtocolError) and total is not None:
            raise RoostError(f"ended after {answer.num_bytes_downloaded} of {total} bytes") from None
        raise RoostError(_cause(error)) from None


def _cause(error: BaseException) -> str:
    """Returns what the system said if one of its errors is behind this one, else what httpx says."""
    behind: BaseException | None = error
    while behind is not None:
        if isinstance(behind, OSError) and behind.strerror:
            return single_line(behind.strerror)
        behind = behind.__cause__ or behind.__context__  # httpx hides the cause from tracebacks
    return single_line(str(error) or type(error).__name__)  # a server may write anything


class _SystemTransport(httpx.BaseTransport):
    """Sends requests through the proxies of the system and with its certificates.

    httpx alone has certificates of its own, and refuses to begin where ``all_proxy`` names a SOCKS proxy,
    even if another variable names the proxy of this scheme.
    """

    def __init__(self) -> None:
        self._certificates = ssl.create_default_context()
        self._by_proxy: dict[str, httpx.HTTPTransport] = {}

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Sends one request; each redirection is one more."""
        proxy = urllib.request.getproxies().get(request.url.scheme, "")
        if proxy and urllib.request.proxy_bypass(request.url.netloc.decode("ascii")):
            proxy = ""
        if proxy not in self._by_proxy:
            address = proxy if "://" in proxy or not proxy else f"http://{proxy}"
            self._by_proxy[proxy] = httpx.HTTPTransport(verify=self._certificates, proxy=address or None)
        return self._by_proxy[proxy].handle_request(request)

    def close(self) -> None:
        """Closes all connections."""
        for transport in self._by_proxy.values():
            transport.close()


class TransferMonitor:
    """Detects a mirror that sends a few bytes before each time-out of the socket.

    It counts every byte of a connection: for headers, too, httpx waits as long as another byte arrives before
    each time-out.

    Args:
        window_seconds: Seconds over which the speed is measured.
    """

    def __init__(self, window_seconds: float) -> None:
        self.restart(window_seconds)

    def restart(self, window_seconds: float) -> None:
        """Begins a new window."""
        self._window_seconds = window_seconds
        self._since, self._bytes = time.monotonic(), 0

    def add(self, count: int) -> None:
        """Counts ``count`` more bytes.

        Raises:
            RoostError: The speed of the last window was too low.
        """
        self._bytes += count
        seconds = time.monotonic() - self._since
        if seconds < self._window_seconds:
            return
        if self._bytes < _SLOWEST_BYTES_PER_SECOND * seconds:
            raise RoostError(f"stalled: {self._bytes} bytes in {seconds:.0f} s")
        self.restart(self._window_seconds)

    def observe_connection(self, event: str, info: Mapping[str, Any]) -> None:
        """Counts the bytes of each connection from its begin on: a callback for httpx's extension "trace"."""
        if not event.endswith((".connect_tcp.complete", ".start_tls.complete")):
            return
        stream = info["return_value"]
        read = stream.read

        def counted_read(max_bytes: int, timeout: float | None = None) -> bytes:
            data: bytes = read(max_bytes, timeout)
            self.add(len(data))
            return data

        stream.read = counted_read
