"""`Route`, one operation over HTTP: its path, parameters and answer; and how any route is served, as JSON, as
a file or as an event stream. The rows themselves are in `roost.serve.routes`."""

from __future__ import annotations

import asyncio
import functools
import os
import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, get_args, get_origin, get_type_hints

import anyio
import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route as StarletteRoute

from roost.base.errors import RoostError
from roost.operations.responses import ErrorResponse, StreamEvent
from roost.serve import request_journal
from roost.serve.http import error_response, request_body
from roost.serve.http.error_response import HttpError

_POLL_SECONDS, _MAX_POLL_SECONDS = 0.1, 0.5
_POLL_FRACTION = 0.05
"""A quiet stream is polled less often: the pause is this fraction of the time since its last data."""
_KEEPALIVE_SECONDS = 15.0
"""A stream without data sends a comment this often, so that no proxy takes it for dead."""
_CHUNK_BYTES = 1 << 18


class RequestParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The parameters of an operation. The fields that the path names are in the path; the others are in the
    query of a GET, otherwise in the body."""


class EventStream(Protocol):
    """A log, records or events that a client follows."""

    @property
    def has_ended(self) -> bool:
        """Whether no further data will come."""

    def read_new(self) -> Sequence[StreamEvent[Any]]:
        """Returns the data since the last call; does not wait."""

    def close(self) -> None:
        """Releases the files of the stream."""


class FileContent:
    """The bytes of an open file.

    Args:
        fd: The descriptor of a regular file; closed at the end.
        name: The name under which a browser saves it.
    """

    def __init__(self, fd: int, name: str) -> None:
        self._file, self.name = os.fdopen(fd, "rb", buffering=0), name
        self.size = os.fstat(fd).st_size

    def close(self) -> None:
        """Closes the file without reading it."""
        self._file.close()

    def chunks(self) -> Iterator[bytes]:
        """Yields all bytes that the file had when it was opened."""
        left = self.size
        with self._file:
            while left and (piece := self._file.read(min(left, _CHUNK_BYTES))):
                left -= len(piece)
                yield piece


@dataclass(frozen=True, kw_only=True)
class Route:
    """One operation over HTTP.

    Args:
        name: The name of the operation, for clients (``operationId``).
        path: The path below ``/api/v1``, with the names of parameters in braces.
        summary: One sentence, also in the table of ``docs/server.md``.
        parameters: The type of its parameters.
        answer: The type that ``run`` returns: a type for JSON, `EventStream`, or `FileContent`.
        run: Carries the operation out; called in a thread.
        status: The status of success.
    """

    name: str
    path: str
    summary: str
    parameters: type[RequestParameters]
    answer: Any
    run: Callable[[Any], Any]
    method: Literal["GET", "POST", "DELETE"] = "GET"
    status: int = 200

    @functools.cached_property
    def list_parameters(self) -> frozenset[str]:
        """The parameters that may be repeated in a query."""
        hints = get_type_hints(self.parameters)
        return frozenset(name for name, hint in hints.items() if get_origin(hint) in (list, tuple))

    @functools.cached_property
    def integer_parameters(self) -> frozenset[str]:
        """The parameters that are whole numbers."""
        hints = get_type_hints(self.parameters)
        return frozenset(name for name, hint in hints.items() if int in (hint, *get_args(hint)))

    @property
    def path_parameters(self) -> list[str]:
        """The parameters in the path."""
        return [part.strip("{}").partition(":")[0] for part in self.path.split("/") if part.startswith("{")]


@dataclass(frozen=True)
class ConcurrencyLimits:
    """The limits that all routes share."""

    threads: anyio.CapacityLimiter
    """Threads that carry out operations."""
    poll_threads: anyio.CapacityLimiter
    """Threads that poll event streams; few, so that requests do not wait for them."""
    streams: anyio.CapacityLimiter
    """Open event streams."""


def encode_hook(value: Any) -> str:
    """Encodes paths as text; msgspec calls it for types that it does not know.

    Raises:
        NotImplementedError: The value is of another type.
    """
    if isinstance(value, Path):
        return str(value)
    raise NotImplementedError(type(value))


def encode_json(value: Any) -> bytes:
    """Returns a value as JSON. File names need not be UTF-8; their invalid bytes are replaced."""
    try:
        return msgspec.json.encode(value, enc_hook=encode_hook)
    except UnicodeEncodeError:
        return msgspec.json.encode(_replace_invalid_utf8(msgspec.to_builtins(value, enc_hook=encode_hook)))


def _replace_invalid_utf8(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_replace_invalid_utf8(key): _replace_invalid_utf8(one) for key, one in value.items()}
    return [_replace_invalid_utf8(one) for one in value] if isinstance(value, list) else value


def to_starlette(route: Route, prefix: str, limits: ConcurrencyLimits) -> StarletteRoute:
    """Returns the route for the application."""

    async def endpoint(request: Request) -> Response:
        try:
            parameters = _parse_parameters(route, request, await request.body())
            if route.answer is EventStream:
                return await stream_response(route, parameters, limits)
            found = await anyio.to_thread.run_sync(execute, route, parameters, limiter=limits.threads)
            if isinstance(found, FileContent):
                return _file_response(found)
            return Response(encode_json(found), status_code=route.status, media_type="application/json")
        except Exception as error:  # noqa: BLE001  - the client gets an answer to every error
            return failure_response(error)

    made = StarletteRoute(prefix + route.path, endpoint, methods=[route.method], name=route.name)
    # Names of tasks and files may contain a line break, and a path that ends with one is another path.
    made.path_regex = re.compile(made.path_regex.pattern.removesuffix("$") + r"\Z", re.DOTALL)
    made.methods = {route.method}  # without HEAD, which would open a stream and send none of it
    return made


def execute(route: Route, parameters: RequestParameters) -> Any:
    """Carries out an operation; one that may change something is added to the journal, also if it fails."""
    if route.method == "GET":
        return route.run(parameters)
    try:
        found = route.run(parameters)
    except RoostError as error:
        request_journal.add_failure(route.name, parameters, error)
        raise
    request_journal.add_entry(route.name, parameters, found)
    return found


def failure_response(error: Exception) -> Response:
    """Returns the answer to a failed request."""
    answered = _to_logged_http_error(error)
    return Response(
        encode_json(ErrorResponse(answered.problem)),
        status_code=answered.status,
        media_type="application/json",
    )


def _to_logged_http_error(error: Exception) -> HttpError:
    """Returns the answer for an error; writes an unforeseen error to the server's log."""
    answered = error_response.to_http_error(error)
    if answered.status == 500 and not isinstance(error, HttpError):
        error_response.log_exception(error)
    return answered


def _parse_parameters(route: Route, request: Request, data: bytes) -> RequestParameters:
    path_parameters = dict(request.path_params)
    if route.method == "GET":
        given = request_body.query_parameters(
            request_body.parse_query(request.scope["query_string"]), route.list_parameters
        )
        request_body.require_integers(given, route.integer_parameters)
    else:
        if request.query_params:
            raise HttpError(
                400, "malformed", "only a GET has a query", fix="put the parameters into the body"
            )
        given = request_body.parse_json_object(data) if data else {}
    if twice := given.keys() & path_parameters.keys():
        raise HttpError(400, "malformed", "is in the path already", field=min(twice), fix="leave it out")
    request_body.require_text(path_parameters)
    last = request.headers.get("last-event-id")
    if route.answer is EventStream and last is not None:
        given["cursor"] = last
    strict = route.method != "GET"
    return request_body.convert_parameters(
        route.parameters, {**given, **path_parameters}, strict=strict, path_parameters=path_parameters
    )


def _file_response(found: FileContent) -> Response:
    quoted = "".join(char if char.isalnum() or char in "._-" else "_" for char in found.name)
    headers = {
        "content-disposition": f'attachment; filename="{quoted.encode("ascii", "replace").decode()}"',
        "content-length": str(found.size),
    }
    return StreamingResponse(found.chunks(), media_type="application/octet-stream", headers=headers)


def _poll(stream: EventStream) -> tuple[bool, list[bytes]]:
    """Returns whether the stream has ended, and the new data as server-sent events. A client that reads
    slowly keeps no more than this in memory."""
    has_ended = stream.has_ended  # read first: data from before the end is then in the new data
    return has_ended, [
        b"id: %s\nevent: %s\ndata: %s\n\n" % (one.cursor.encode(), one.kind.encode(), encode_json(one.data))
        for one in stream.read_new()
    ]


class _EventStreamResponse(StreamingResponse):
    """The response of a stream, which is one of the limited number. At its end, whatever the reason, the
    stream is closed and no longer counted."""

    def __init__(self, stream: EventStream, limits: ConcurrencyLimits, borrower: object) -> None:
        super().__init__(server_sent_events(stream, limits.poll_threads), media_type="text/event-stream")
        self._stream, self._streams, self._borrower = stream, limits.streams, borrower

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._streams.release_on_behalf_of(self._borrower)
            self._stream.close()


async def stream_response(route: Route, parameters: RequestParameters, limits: ConcurrencyLimits) -> Response:
    """Returns the response of an event stream.

    Raises:
        HttpError: 503; too many streams are open.
    """
    borrower = object()
    try:
        limits.streams.acquire_on_behalf_of_nowait(borrower)
    except anyio.WouldBlock:
        fix = "end some, or read pages from a cursor on"
        raise HttpError(503, "busy", "too many streams are open", fix=fix) from None
    try:
        found = await anyio.to_thread.run_sync(execute, route, parameters, limiter=limits.threads)
        return _EventStreamResponse(found, limits, borrower)
    except BaseException:
        limits.streams.release_on_behalf_of(borrower)
        raise


async def server_sent_events(
    stream: EventStream, poll_threads: anyio.CapacityLimiter
) -> AsyncIterator[bytes]:
    """Yields a stream as server-sent events. The last one is ``end`` if the stream has ended, ``error`` if it
    cannot continue."""
    quiet = since_keepalive = 0.0
    while True:
        try:
            has_ended, found = await anyio.to_thread.run_sync(_poll, stream, limiter=poll_threads)
        except Exception as error:  # noqa: BLE001  - the status is sent already
            yield (
                b"event: error\ndata: "
                + msgspec.json.encode(ErrorResponse(_to_logged_http_error(error).problem))
                + b"\n\n"
            )
            return
        for one in found:
            yield one
        if found:
            quiet = since_keepalive = 0.0
            continue
        if has_ended:
            yield b"event: end\ndata: {}\n\n"
            return
        pause = min(max(_POLL_SECONDS, quiet * _POLL_FRACTION), _MAX_POLL_SECONDS)
        await asyncio.sleep(pause)
        quiet, since_keepalive = quiet + pause, since_keepalive + pause
        if since_keepalive >= _KEEPALIVE_SECONDS:
            since_keepalive = 0.0
            yield b": \n\n"
