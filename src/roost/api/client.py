"""Two thin transports for the same methods: one waits for each answer, the other is awaited."""

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
from roost.api.api_call import Call, Following, half_of_a_character
from roost.api.client_methods import Operations
from roost.api.resumed_stream import BEAT_SECONDS, Followed
from roost.base.errors import RoostError, UsageError
from roost.operations.responses import Piece

T = TypeVar("T")

_CONNECT_SECONDS = 10.0
_JSON = "application/json"


class _Asking(Operations):
    """What both have.

    Args:
        url: ``http://localhost:9999``; None: the server of this user, by its socket, without a token. Then
            paths may be relative to the folder of this program.
        token: As `roost server token` prints it; None: that in ``ROOST_SERVER_TOKEN``, else that of this
            user's own server.
        timeout_seconds: For so long an answer may take.
        patience_seconds: For so long the server of a stream may be away.
        most_bytes: A larger answer is refused.

    Raises:
        UsageError, Refused, NotFound: As `roost.api.server_address.find`.
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
        self._place = server_address.find(url, token)
        self._seconds, self._patience, self._most = timeout_seconds, patience_seconds, most_bytes
        try:
            self._open()
        except (httpx.InvalidURL, ValueError) as error:
            raise server_address.no_url(str(error)) from None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self._place)!r})"

    def _open(self) -> None:
        raise NotImplementedError

    def _path(self, given: Path | str) -> str:
        """Over the socket the server sees the same files; elsewhere it alone knows what a path means."""
        return str(given) if self._place.socket is None else str(Path(given).absolute())

    def _options(self) -> dict[str, Any]:
        """Of httpx: no proxy sees the token, and no redirect takes it elsewhere."""
        token = self._place.token
        return {
            "base_url": self._place.url,
            "headers": {
                "accept-encoding": "identity",
                **({"authorization": f"Bearer {token}"} if token is not None else {}),
            },
            "timeout": httpx.Timeout(self._seconds, connect=_CONNECT_SECONDS),
            "trust_env": False,
            "follow_redirects": False,
        }

    def _socket(self) -> str | None:
        return str(self._place.socket) if self._place.socket is not None else None

    def _request(self, client: Any, call: Call[Any]) -> httpx.Request:
        if call.method == "GET":
            return self._made(client, "GET", call.path, params=_query(call.given))
        try:
            data = json.dumps(call.given, default=_plain, allow_nan=False).encode()
        except ValueError as error:
            raise UsageError(f"a number is none: {error}", fix="give finite numbers") from None
        return self._made(client, call.method, call.path, content=data, headers={"content-type": _JSON})

    def _stream_request(self, client: Any, path: str, given: dict[str, Any]) -> httpx.Request:
        timeout = httpx.Timeout(BEAT_SECONDS, connect=_CONNECT_SECONDS)
        return self._made(client, "GET", path, params=_query(given), timeout=timeout)

    def _made(self, client: Any, method: str, path: str, **more: Any) -> httpx.Request:
        if client.is_closed:
            raise UsageError("the client is closed", fix="make a new one")
        try:
            return cast(httpx.Request, client.build_request(method, server_address.PREFIX + path, **more))
        except (httpx.InvalidURL, UnicodeError) as error:
            raise UsageError(f"this cannot be asked: {error}", fix="ask for less at once") from None

    def _answer(self, call: Call[T], status: int, data: bytes) -> T:
        if not 200 <= status < 300:
            raise error_mapping.of(status, data)
        if call.answer is bytes:
            return cast(T, data)
        try:
            return msgspec.json.decode(data, type=call.answer)
        except msgspec.MsgspecError as error:
            fix = "use the roost of the server: `about()` tells its version"
            raise RoostError(
                f"the server answers what this roost does not understand: {error}", fix=fix
            ) from None

    def _added(self, found: bytearray, piece: bytes) -> None:
        found += piece
        if len(found) > self._most:
            fix = "ask for less at once, or give the client more most_bytes"
            raise RoostError(f"the answer has more than {self._most} bytes", fix=fix)

    def _away(self, state: Followed[Any], error: httpx.TransportError) -> Exception:
        if not state.has_begun:
            raise self._failed(None, error) from None
        return error

    def _failed(self, call: Call[Any] | None, error: httpx.TransportError) -> RoostError:
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
            return error_mapping.gone(str(self._place), str(error))
        if isinstance(error, httpx.TimeoutException):
            return error_mapping.silent(self._seconds, is_question=call is None or call.method == "GET")
        what = f"the connection to the server broke: {str(error) or type(error).__name__}"
        return RoostError(what, fix="try again; look first whether an order was carried out")


class Client(_Asking):
    """The server, from Python: each method waits for its answer."""

    def _open(self) -> None:
        path = self._socket()
        transport = httpx.HTTPTransport(uds=path) if path is not None else None
        self._http = httpx.Client(transport=transport, **self._options())

    def do(self, call: Call[T]) -> T:
        """Asks; gives the answer."""
        try:
            answer = self._sent(self._request(self._http, call))
            try:
                data = self._whole(answer)
            finally:
                answer.close()
        except httpx.TransportError as error:
            raise self._failed(call, error) from None
        return self._answer(call, answer.status_code, data)

    def follow(self, following: Following[T]) -> Generator[Piece[T], None, None]:
        """What comes, over as many connections as it takes."""
        state = Followed(following, self._patience)
        while not state.has_ended:
            why: Exception | None = None
            try:
                request = self._stream_request(self._http, following.path, state.given)
                answer = self._sent(request)
                try:
                    if answer.status_code != 200:
                        why = error_mapping.of(answer.status_code, self._whole(answer))
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
                why = self._away(state, error)
            time.sleep(state.pause(why))

    def _sent(self, request: httpx.Request) -> httpx.Response:
        if (path := self._socket()) is not None:
            _require_there(path)
        return self._http.send(request, stream=True)

    def _whole(self, answer: httpx.Response) -> bytes:
        found = bytearray()
        for piece in answer.iter_raw():
            self._added(found, piece)
        return bytes(found)

    def close(self) -> None:
        """Closes its connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncClient(_Asking):
    """The server, from programs of asyncio: methods are awaited, streams are iterated with ``async for``."""

    def _open(self) -> None:
        path = self._socket()
        transport = httpx.AsyncHTTPTransport(uds=path) if path is not None else None
        self._http = httpx.AsyncClient(transport=transport, **self._options())

    async def do(self, call: Call[T]) -> T:
        """Asks; gives the answer."""
        try:
            answer = await self._http.send(self._request(self._http, call), stream=True)
            try:
                data = await self._whole(answer)
            finally:
                await answer.aclose()
        except httpx.TransportError as error:
            raise self._failed(call, error) from None
        return self._answer(call, answer.status_code, data)

    async def follow(self, following: Following[T]) -> AsyncGenerator[Piece[T], None]:
        """What comes, over as many connections as it takes."""
        state = Followed(following, self._patience)
        while not state.has_ended:
            why: Exception | None = None
            try:
                request = self._stream_request(self._http, following.path, state.given)
                answer = await self._http.send(request, stream=True)
                try:
                    if answer.status_code != 200:
                        why = error_mapping.of(answer.status_code, await self._whole(answer))
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
                why = self._away(state, error)
            await asyncio.sleep(state.pause(why))

    async def _whole(self, answer: httpx.Response) -> bytes:
        found = bytearray()
        async for piece in answer.aiter_raw():
            self._added(found, piece)
        return bytes(found)

    async def aclose(self) -> None:
        """Closes its connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def _require_there(path: str) -> None:
    """Connects once by itself: where nobody listens httpcore leaves a socket to the garbage collector, whose
    warning would come at any time."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_CONNECT_SECONDS)
        try:
            probe.connect(path)
        except OSError as error:
            raise httpx.ConnectError(str(error)) from None


def _query(given: Any) -> dict[str, Any]:
    """As text; what may come several times comes as often."""
    return {
        name: [_text(one) for one in value] if isinstance(value, list | tuple) else _text(value)
        for name, value in given.items()
    }


def _text(value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise half_of_a_character(text) from None
    return text


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"no parameter is a {type(value).__name__}")
