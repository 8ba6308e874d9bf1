"""`Client` and `AsyncClient`: a blocking and an asynchronous transport for the same methods."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, cast

import httpx
import msgspec

from roost.api import error_mapping, server_address
from roost.api.api_call import ApiRequest, StreamRequest, lone_surrogate_error
from roost.api.client_methods import ClientMethods
from roost.api.resumed_stream import HEARTBEAT_SECONDS, ResumedStream
from roost.base.errors import RoostError, UsageError
from roost.operations.responses import StreamEvent

T = TypeVar("T")

_CONNECT_SECONDS = 10.0
_JSON = "application/json"


class _ClientBase(ClientMethods):
    """The common part of both clients.

    Args:
        url: ``http://localhost:9999``; None: the server of this user, by its socket, without a token; paths
            may then be relative to the working folder of this program.
        token: The output of `roost server token`; None: ``ROOST_SERVER_TOKEN``, otherwise the token of this
            user's own server.
        timeout_seconds: The time limit of an answer.
        patience_seconds: For so long a stream waits for a server that is unreachable.
        most_bytes: The maximum size of an answer.

    Raises:
        UsageError, Refused, NotFound: As in `roost.api.server_address.find`.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        timeout_seconds: float = 120.0,
        patience_seconds: float = 60.0,
        most_bytes: int = 1 << 28,
    ) -> None:
        self._address = server_address.find(url, token)
        self._timeout_seconds, self._patience_seconds, self._max_bytes = (
            timeout_seconds,
            patience_seconds,
            most_bytes,
        )
        try:
            self._open()
        except (httpx.InvalidURL, ValueError) as error:
            raise server_address.invalid_url(str(error)) from None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self._address)!r})"

    def _open(self) -> None:
        raise NotImplementedError

    def _path(self, given: Path | str) -> str:
        """Returns a path for the server: absolute over the socket, where the server sees the same files;
        otherwise unchanged, because only the server can resolve it."""
        return str(given) if self._address.socket is None else str(Path(given).absolute())

    def _http_options(self) -> dict[str, Any]:
        """Returns the options of httpx: no proxy may see the token, and no redirect may send it elsewhere."""
        token = self._address.token
        return {
            "base_url": self._address.url,
            "headers": {
                "accept-encoding": "identity",
                **({"authorization": f"Bearer {token}"} if token is not None else {}),
            },
            "timeout": httpx.Timeout(self._timeout_seconds, connect=_CONNECT_SECONDS),
            "trust_env": False,
            "follow_redirects": False,
        }

    def _socket(self) -> str | None:
        return str(self._address.socket) if self._address.socket is not None else None

    def _request(self, client: Any, call: ApiRequest[Any]) -> httpx.Request:
        if call.method == "GET":
            return self._build_request(client, "GET", call.path, params=_query(call.given))
        try:
            data = json.dumps(call.given, default=_plain, allow_nan=False).encode()
        except ValueError as error:
            raise UsageError(f"a number is not finite: {error}", fix="give finite numbers") from None
        return self._build_request(
            client, call.method, call.path, content=data, headers={"content-type": _JSON}
        )

    def _stream_request(self, client: Any, path: str, given: dict[str, Any]) -> httpx.Request:
        timeout = httpx.Timeout(HEARTBEAT_SECONDS, connect=_CONNECT_SECONDS)
        return self._build_request(client, "GET", path, params=_query(given), timeout=timeout)

    def _build_request(self, client: Any, method: str, path: str, **more: Any) -> httpx.Request:
        if client.is_closed:
            raise UsageError("the client is closed", fix="create a new one")
        try:
            return cast(httpx.Request, client.build_request(method, server_address.PREFIX + path, **more))
        except (httpx.InvalidURL, UnicodeError) as error:
            raise UsageError(f"the request cannot be sent: {error}", fix="request less at once") from None

    def _answer(self, call: ApiRequest[T], status: int, data: bytes) -> T:
        if not 200 <= status < 300:
            raise error_mapping.response_error(status, data)
        if call.answer is bytes:
            return cast(T, data)
        try:
            return msgspec.json.decode(data, type=call.answer)
        except (ValueError, RecursionError) as error:
            fix = "use the version of roost that the server has: `about()` returns it"
            raise RoostError(f"this version of roost cannot decode the answer: {error}", fix=fix) from None

    def _append(self, found: bytearray, piece: bytes) -> None:
        found += piece
        if len(found) > self._max_bytes:
            fix = "request less at once, or give the client a larger most_bytes"
            raise RoostError(f"the answer has more than {self._max_bytes} bytes", fix=fix)

    def _stream_error(self, state: ResumedStream[Any], error: httpx.TransportError) -> Exception:
        if not state.has_begun:
            raise self._transport_error(None, error) from None
        return error

    def _transport_error(self, call: ApiRequest[Any] | None, error: httpx.TransportError) -> RoostError:
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
            return error_mapping.unreachable_error(str(self._address), str(error))
        if isinstance(error, httpx.TimeoutException):
            return error_mapping.timeout_error(
                self._timeout_seconds, is_read=call is None or call.method == "GET"
            )
        what = f"the connection to the server broke: {str(error) or type(error).__name__}"
        return RoostError(what, fix="check whether the request was carried out, then try again")


class Client(_ClientBase):
    """A client of the server whose methods block until the answer arrives."""

    def _open(self) -> None:
        path = self._socket()
        transport = httpx.HTTPTransport(uds=path) if path is not None else None
        self._http = httpx.Client(transport=transport, **self._http_options())

    def do(self, call: ApiRequest[T]) -> T:
        """Sends a request and returns its answer."""
        try:
            answer = self._send(self._request(self._http, call))
            try:
                data = self._read_all(answer)
            finally:
                answer.close()
        except httpx.TransportError as error:
            raise self._transport_error(call, error) from None
        return self._answer(call, answer.status_code, data)

    def follow(self, following: StreamRequest[T]) -> Generator[StreamEvent[T], None, None]:
        """Yields the pieces of a stream, and reconnects as often as needed."""
        state = ResumedStream(following, self._patience_seconds)
        while not state.has_ended:
            why: Exception | None = None
            try:
                request = self._stream_request(self._http, following.path, state.given)
                answer = self._send(request)
                try:
                    if answer.status_code != 200:
                        why = error_mapping.response_error(answer.status_code, self._read_all(answer))
                        state.require_busy(answer.status_code, why)
                    else:
                        state.connected()
                        for data in answer.iter_raw():
                            yield from state.pieces(data)
                            if state.has_ended:
                                return
                finally:
                    answer.close()
            except httpx.TransportError as error:
                why = self._stream_error(state, error)
            time.sleep(state.pause(why))

    def _send(self, request: httpx.Request) -> httpx.Response:
        if (path := self._socket()) is not None:
            _require_listening(path)
        return self._http.send(request, stream=True)

    def _read_all(self, answer: httpx.Response) -> bytes:
        found = bytearray()
        for piece in answer.iter_raw():
            self._append(found, piece)
        return bytes(found)

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncClient(_ClientBase):
    """A client of the server for asyncio: methods are awaited, streams are iterated with ``async for``."""

    def _open(self) -> None:
        path = self._socket()
        transport = httpx.AsyncHTTPTransport(uds=path) if path is not None else None
        self._http = httpx.AsyncClient(transport=transport, **self._http_options())

    async def do(self, call: ApiRequest[T]) -> T:
        """Sends a request and returns its answer."""
        try:
            answer = await self._http.send(self._request(self._http, call), stream=True)
            try:
                data = await self._read_all(answer)
            finally:
                await answer.aclose()
        except httpx.TransportError as error:
            raise self._transport_error(call, error) from None
        return self._answer(call, answer.status_code, data)

    async def follow(self, following: StreamRequest[T]) -> AsyncGenerator[StreamEvent[T], None]:
        """Yields the pieces of a stream, and reconnects as often as needed."""
        state = ResumedStream(following, self._patience_seconds)
        while not state.has_ended:
            why: Exception | None = None
            try:
                request = self._stream_request(self._http, following.path, state.given)
                answer = await self._http.send(request, stream=True)
                try:
                    if answer.status_code != 200:
                        why = error_mapping.response_error(answer.status_code, await self._read_all(answer))
                        state.require_busy(answer.status_code, why)
                    else:
                        state.connected()
                        async for data in answer.aiter_raw():
                            for piece in state.pieces(data):
                                yield piece
                            if state.has_ended:
                                return
                finally:
                    await answer.aclose()
            except httpx.TransportError as error:
                why = self._stream_error(state, error)
            await asyncio.sleep(state.pause(why))

    async def _read_all(self, answer: httpx.Response) -> bytes:
        found = bytearray()
        async for piece in answer.aiter_raw():
            self._append(found, piece)
        return bytes(found)

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def _require_listening(path: str) -> None:
    """Connects once to the socket: if no server listens, httpcore leaves a socket to the garbage collector,
    whose ResourceWarning would appear at a random time."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_CONNECT_SECONDS)
        try:
            probe.connect(path)
        except OSError as error:
            raise httpx.ConnectError(str(error)) from None


def _query(given: Any) -> dict[str, Any]:
    """Returns a query with all values as text; a list becomes a repeated parameter."""
    return {
        name: [_text(one) for one in value] if isinstance(value, list | tuple) else _text(value)
        for name, value in given.items()
    }


def _text(value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise lone_surrogate_error(text) from None
    return text


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"a {type(value).__name__} cannot be a parameter")
