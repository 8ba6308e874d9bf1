"""The one way in: every request, whatever its route and method, is refused unless all of this lets it pass.

The order is size, Host, Origin, token, content type. A socket of our own in a folder of our own needs no
token: the system lets nobody else reach it.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

import msgspec

from roost.base.errors import RoostError
from roost.operations.responses import Failed
from roost.serve.http import error_response
from roost.serve.http.error_response import Answered, tell

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LOCAL = "roost.local"
"""In the state of a connection that came over our own socket, from ourselves."""
MOST_BODY_BYTES = 1 << 20
MOST_HEADER_BYTES = 1 << 14
BODY_SECONDS = 30.0
_USUAL_PORT = 80
"""Of HTTP: clients leave it out."""
_SAFE = ("GET", "HEAD", "OPTIONS")
_BUSY = 503
_FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")
_JSON = "application/json"
_MOST_FAILURES, _FAILURE_SECONDS = 20, 10.0
"""So many wrong tokens in so many seconds are answered; then all that bring a wrong one wait that long. Of as
many refusals the log tells: nobody who is refused fills the disk with it."""
_ONCE = (
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

HEADERS = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'self'; frame-ancestors 'none'; base-uri 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
"""Of every answer."""


class Gate:
    """Lets a request pass to ``app``, or answers it.

    Args:
        app: What is behind.
        token: Gives the token as it is now.
        port: Of the TCP socket.
        forms: Paths at which a form is taken, too (document 000's).
        log: Takes method, path, status and seconds of every request.
    """

    def __init__(
        self,
        app: App,
        *,
        token: Callable[[], str],
        port: int | None,
        forms: frozenset[str] = frozenset(),
        log: Callable[[str, str, int, float], None] = lambda *_: None,
    ) -> None:
        self._app, self._token, self._forms, self._log = app, token, forms, log
        self._hosts = {b"roost", b"localhost"}
        if port is not None:
            ends = (f":{port}", "") if port == _USUAL_PORT else (f":{port}",)
            self._hosts = {f"{name}{end}".encode() for name in ("127.0.0.1", "localhost") for end in ends}
        self._local_hosts = {b"roost", b"localhost"}
        self._failures, self._told = _Window(), _Window()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        began, status, is_told = time.monotonic(), 0, True

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message.get("headers", ()), *HEADERS]}
            await send(message)

        try:
            if scope["type"] != "http":
                await send({"type": "websocket.close", "code": 1008})
                return
            try:
                self._require(scope)
                body = await _whole(scope, receive)
            except Answered as refused:
                is_told = self._told.takes()
                await answer(refused, sent)
            else:
                await self._app(scope, _again(body, receive), sent)
        finally:
            if is_told:
                self._log(str(scope.get("method", "")), str(scope["path"]), status, time.monotonic() - began)

    def _require(self, scope: Scope) -> None:
        headers = _headers(scope)
        is_local = scope.get("state", {}).get(LOCAL) is True
        if _length(headers) > MOST_BODY_BYTES:
            raise Answered(413, "too_large", f"a body has at most {MOST_BODY_BYTES} bytes")
        if headers.get(b"host", b"") not in (self._local_hosts if is_local else self._hosts):
            fix = f"call it {min(self._hosts).decode()}; behind a tunnel, send that as the header Host"
            raise Answered(403, "host", "this server is not called that", fix=fix)
        origin = headers.get(b"origin")
        if origin is not None and (is_local or origin != b"http://" + headers[b"host"]):
            raise Answered(403, "origin", "requests of other pages are refused")
        if headers.get(b"sec-fetch-site", b"none") not in (b"same-origin", b"none"):
            raise Answered(403, "origin", "requests of other sites are refused")
        if not is_local:
            self._require_token(headers.get(b"authorization", b""))
        self._require_content(scope, headers)

    def _require_token(self, given: bytes) -> None:
        kind, _, value = given.partition(b" ")
        try:
            token = self._token()
        except (OSError, RoostError) as error:
            if (
                found := error_response.of(error)
            ).status == _BUSY:  # no descriptor is left, and soon one will be
                raise found from None
            tell(error)
            raise Answered(500, "token_file", "the token cannot be read; the server's log says why") from None
        if kind.lower() == b"bearer" and hmac.compare_digest(value, token.encode()):
            return
        if not self._failures.takes():
            raise Answered(429, "too_many", "too many requests had a wrong token", fix="wait some seconds")
        fix = "send the header `Authorization: Bearer …` with what `roost server token` prints"
        raise Answered(401, "token", "the token is missing or wrong", fix=fix)

    def _require_content(self, scope: Scope, headers: Mapping[bytes, bytes]) -> None:
        if headers.get(b"content-encoding", b"identity") != b"identity":
            raise Answered(415, "content_encoding", "the body must not be compressed")
        if scope["method"] in _SAFE:
            return
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower().decode("latin-1")
        if kind == _JSON or (kind in _FORMS and scope["path"] in self._forms):
            return
        if not kind and not _length(headers) and b"transfer-encoding" not in headers:
            return  # without a body there is no type to name
        fix = f"send the header `Content-Type: {_JSON}`"
        raise Answered(415, "content_type", f"the body must be {_JSON}", fix=fix)


class _Window:
    """Counts what happens, and says when it is too much."""

    def __init__(self) -> None:
        self._at: list[float] = []

    def takes(self) -> bool:
        """Counts one more, unless there have been too many of late."""
        now = time.monotonic()
        self._at = [at for at in self._at if now - at < _FAILURE_SECONDS]
        if len(self._at) >= _MOST_FAILURES:
            return False
        self._at.append(now)
        return True


async def answer(refused: Answered, send: Send) -> None:
    """Sends an answer that is no success."""
    body = msgspec.json.encode(Failed(refused.problem))
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if refused.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _headers(scope: Scope) -> dict[bytes, bytes]:
    """By name; those that two readers could understand differently are refused."""
    found: dict[bytes, bytes] = {}
    if sum(len(name) + len(value) for name, value in scope["headers"]) > MOST_HEADER_BYTES:
        raise Answered(431, "too_large", f"all headers together have at most {MOST_HEADER_BYTES} bytes")
    for name, value in scope["headers"]:
        if name in found and name in _ONCE:
            raise Answered(400, "malformed", f"the header {name.decode('latin-1')} comes twice")
        found[name] = value
    if b"content-length" in found and b"transfer-encoding" in found:
        raise Answered(400, "malformed", "a body has a length or comes in pieces, not both")
    return found


def _length(headers: Mapping[bytes, bytes]) -> int:
    text = headers.get(b"content-length", b"0")
    if not text.isdigit():
        raise Answered(400, "malformed", "the length of the body is no number")
    return int(text)


async def _whole(scope: Scope, receive: Receive) -> bytes:
    """The body; a request that takes too long over it, or sends too much, is refused."""
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    raise Answered(400, "malformed", "the client went away")
                body += message.get("body", b"")
                if len(body) > MOST_BODY_BYTES:
                    raise Answered(413, "too_large", f"a body has at most {MOST_BODY_BYTES} bytes")
                if not message.get("more_body"):
                    return bytes(body)
    except TimeoutError:
        raise Answered(408, "slow", "the body did not come") from None


def _again(body: bytes, receive: Receive) -> Receive:
    """Gives a body that was read before, then whatever comes."""
    is_given = False

    async def given() -> Message:
        nonlocal is_given
        if is_given:
            return await receive()
        is_given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return given
