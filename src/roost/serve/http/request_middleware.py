"""The checks that every request must pass, whatever its route and method, before the application gets it.

Their order: size, Host, Origin, token, content type. A connection of the same user over the unix socket
needs no token, because the system keeps all other users out of the socket's folder.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

import msgspec

from roost.base.errors import RoostError
from roost.operations.responses import ErrorResponse
from roost.serve.http import error_response
from roost.serve.http.error_response import HttpError, log_exception

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LOCAL_STATE_KEY = "roost.local"
"""The key in the state of a connection that the same user has opened over the unix socket."""
MAX_BODY_BYTES = 1 << 20
MAX_HEADER_BYTES = 1 << 14
BODY_SECONDS = 30.0
_DEFAULT_HTTP_PORT = 80
"""Clients leave it out of the header Host."""
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
_BUSY_STATUS = 503
_FORM_TYPES = ("application/x-www-form-urlencoded", "multipart/form-data")
_JSON_TYPE = "application/json"
_MAX_FAILURES, _FAILURE_SECONDS = 20, 10.0
"""At most this many wrong tokens in this many seconds are answered with 401, the others with 429. The log
gets as many refused requests, so that refused clients cannot fill the disk."""
_SINGLE_HEADERS = (
    b"host",
    b"origin",
    b"authorization",
    b"content-type",
    b"content-length",
    b"content-encoding",
    b"transfer-encoding",
    b"sec-fetch-site",
    b"last-event-id",
)

SECURITY_HEADERS = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'self'; frame-ancestors 'none'; base-uri 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
"""The headers of every answer."""
_FRAMING_CODES = frozenset(["malformed", "too_large", "slow"])
"""Refusals after which nothing on the connection is read: where the next request begins is not certain."""


class RequestMiddleware:
    """Passes a request to ``app``, or refuses it.

    Args:
        app: The application.
        token: Returns the current token.
        port: The port of the TCP socket; None: no host name is accepted but those of the unix socket.
        form_paths: The paths that also accept forms (those of DLNest).
        has_route: Whether a path has a route.
        log_request: Is called with method, path, status and seconds of every request.
    """

    def __init__(
        self,
        app: App,
        *,
        token: Callable[[], str],
        port: int | None,
        form_paths: frozenset[str] = frozenset(),
        has_route: Callable[[str], bool] = lambda _: True,
        log_request: Callable[[str, str, int, float], None] = lambda *_: None,
    ) -> None:
        self._app, self._token, self._form_paths, self._log_request = app, token, form_paths, log_request
        self._has_route = has_route
        self._hosts = {b"roost", b"localhost"}
        if port is not None:
            ends = (f":{port}", "") if port == _DEFAULT_HTTP_PORT else (f":{port}",)
            self._hosts = {f"{name}{end}".encode() for name in ("127.0.0.1", "localhost") for end in ends}
        self._local_hosts = {b"roost", b"localhost"}
        self._token_failures, self._refusals_logged = _RateLimit(), _RateLimit()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        began, status, is_logged = time.monotonic(), 0, True

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message.get("headers", ()), *SECURITY_HEADERS]}
            await send(message)

        try:
            if scope["type"] != "http":
                await send({"type": "websocket.close", "code": 1008})
                return
            try:
                self._require(scope)
                body = await _read_body(scope, receive)
            except HttpError as refused:
                is_logged = self._refusals_logged.try_count()
                await send_error(refused, sent, closes=refused.problem.code in _FRAMING_CODES)
            else:
                await self._app(scope, _replay_body(body, receive), sent)
        finally:
            if is_logged:
                self._log_request(
                    str(scope.get("method", "")), str(scope["path"]), status, time.monotonic() - began
                )

    def _require(self, scope: Scope) -> None:
        headers = _parse_headers(scope)
        is_local = scope.get("state", {}).get(LOCAL_STATE_KEY) is True
        if _content_length(headers) > MAX_BODY_BYTES:
            raise HttpError(413, "too_large", f"a body has at most {MAX_BODY_BYTES} bytes")
        if headers.get(b"host", b"") not in (self._local_hosts if is_local else self._hosts):
            fix = f"use {min(self._hosts).decode()}; behind a tunnel, send that as the header Host"
            raise HttpError(403, "host", "the header Host names another server", fix=fix)
        origin = headers.get(b"origin")
        if origin is not None and (is_local or origin != b"http://" + headers[b"host"]):
            raise HttpError(403, "origin", "requests from other pages are refused")
        if headers.get(b"sec-fetch-site", b"none") not in (b"same-origin", b"none"):
            raise HttpError(403, "origin", "requests from other sites are refused")
        if not is_local:
            self._require_token(headers.get(b"authorization", b""))
        self._require_content(scope, headers)

    def _require_token(self, given: bytes) -> None:
        kind, _, value = given.partition(b" ")
        try:
            token = self._token()
        except (OSError, RoostError) as error:
            if (
                found := error_response.to_http_error(error)
            ).status == _BUSY_STATUS:  # no file descriptor is free, soon one will be
                raise found from None
            log_exception(error)
            raise HttpError(
                500, "token_file", "the token cannot be read; the server's log says why"
            ) from None
        if kind.lower() == b"bearer" and hmac.compare_digest(value, token.encode()):
            return
        if not self._token_failures.try_count():
            raise HttpError(429, "too_many", "too many requests had a wrong token", fix="wait a few seconds")
        fix = "send the header `Authorization: Bearer …` with what `roost server token` prints"
        raise HttpError(401, "token", "the token is missing or wrong", fix=fix)

    def _require_content(self, scope: Scope, headers: Mapping[bytes, bytes]) -> None:
        if headers.get(b"content-encoding", b"identity") != b"identity":
            raise HttpError(415, "content_encoding", "the body must not be compressed")
        if scope["method"] in _SAFE_METHODS:
            return
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower().decode("latin-1")
        if kind == _JSON_TYPE or (kind in _FORM_TYPES and self._accepts_forms(str(scope["path"]))):
            return
        if not kind and not _content_length(headers) and b"transfer-encoding" not in headers:
            return  # without a body there is no content type
        fix = f"send the header `Content-Type: {_JSON_TYPE}`"
        raise HttpError(415, "content_type", f"the body must be {_JSON_TYPE}", fix=fix)

    def _accepts_forms(self, path: str) -> bool:
        """Whether a form may pass: to a path that takes it, or to none, which the application reports."""
        return path in self._form_paths or not self._has_route(path)


class _RateLimit:
    """A limit of ``_MAX_FAILURES`` in ``_FAILURE_SECONDS``."""

    def __init__(self) -> None:
        self._at: list[float] = []

    def try_count(self) -> bool:
        """Counts one more and returns True; returns False if the limit is reached."""
        now = time.monotonic()
        self._at = [at for at in self._at if now - at < _FAILURE_SECONDS]
        if len(self._at) >= _MAX_FAILURES:
            return False
        self._at.append(now)
        return True


async def send_error(refused: HttpError, send: Send, *, closes: bool = False) -> None:
    """Sends the answer to a refused request; ``closes``: and ends the connection."""
    body = msgspec.json.encode(ErrorResponse(refused.problem))
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if refused.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if closes:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _parse_headers(scope: Scope) -> dict[bytes, bytes]:
    """Returns the headers by name; refuses those that two parsers could understand differently."""
    found: dict[bytes, bytes] = {}
    if sum(len(name) + len(value) for name, value in scope["headers"]) > MAX_HEADER_BYTES:
        raise HttpError(431, "too_large", f"all headers together have at most {MAX_HEADER_BYTES} bytes")
    for name, value in scope["headers"]:
        if name in found and name in _SINGLE_HEADERS:
            raise HttpError(400, "malformed", f"the header {name.decode('latin-1')} is given twice")
        found[name] = value
    if b"content-length" in found and b"transfer-encoding" in found:
        raise HttpError(400, "malformed", "a body has a length or a transfer encoding, not both")
    return found


def _content_length(headers: Mapping[bytes, bytes]) -> int:
    text = headers.get(b"content-length", b"0")
    if not text.isdigit():
        raise HttpError(400, "malformed", "the length of the body is not a number")
    return int(text)


async def _read_body(scope: Scope, receive: Receive) -> bytes:
    """Returns the whole body; refuses one that takes too long or is too large."""
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    raise HttpError(400, "malformed", "the client has disconnected")
                body += message.get("body", b"")
                if len(body) > MAX_BODY_BYTES:
                    raise HttpError(413, "too_large", f"a body has at most {MAX_BODY_BYTES} bytes")
                if not message.get("more_body"):
                    return bytes(body)
    except TimeoutError:
        raise HttpError(408, "slow", f"the body did not arrive within {BODY_SECONDS:g} s") from None


def _replay_body(body: bytes, receive: Receive) -> Receive:
    """Returns a `Receive` that first gives the body that was read, then what ``receive`` gives."""
    is_given = False

    async def given() -> Message:
        nonlocal is_given
        if is_given:
            return await receive()
        is_given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return given
