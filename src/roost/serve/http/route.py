"""One operation over HTTP: where it is, what it takes and gives. Routes are rows; nothing here knows any."""

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

from roost.operations.responses import ErrorResponse, StreamEvent
from roost.serve import request_journal
from roost.serve.http import error_response, request_body
from roost.serve.http.error_response import HttpError

_POLL_SECONDS, _MAX_POLL_SECONDS = 0.1, 0.5
_POLL_FRACTION = 0.05
"""Where nothing has come for long, it is not looked ten times a second: after so much of that time again."""
_KEEPALIVE_SECONDS = 15.0
"""A stream on which nothing comes says so this often: what stands between does not take it for dead."""
_CHUNK_BYTES = 1 << 18


class RequestParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an operation is parameters. Those fields that the path names stand there, the others in the query of a
    GET, else in the body."""


class EventStream(Protocol):
    """What is followed."""

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will come."""

    def read_new(self) -> Sequence[StreamEvent[Any]]:
        """What has come since; it does not wait."""

    def close(self) -> None:
        """Nobody follows any more."""


class FileContent:
    """The bytes of a file that is open already.

    Args:
        fd: Of a plain file; it is closed at the end.
        name: What a browser would save it as.
    """

    def __init__(self, fd: int, name: str) -> None:
        self._file, self.name = os.fdopen(fd, "rb", buffering=0), name
        self.size = os.fstat(fd).st_size

    def close(self) -> None:
        """Nobody reads it."""
        self._file.close()

    def chunks(self) -> Iterator[bytes]:
        """All bytes that it had when it was asked for."""
        left = self.size
        with self._file:
            while left and (piece := self._file.read(min(left, _CHUNK_BYTES))):
                left -= len(piece)
                yield piece


@dataclass(frozen=True, kw_only=True)
class Route:
    """One row.

    Args:
        name: Of the operation, for clients.
        path: With the names of fields in braces, below ``/api/v1``.
        summary: One line.
        parameters: What it takes.
        answer: What ``run`` gives: a type for JSON, a `EventStream`, or `FileContent`.
        run: Does it; in a thread.
        status: Of success.
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
        """The parameters of a query that may come more than once."""
        hints = get_type_hints(self.parameters)
        return frozenset(name for name, hint in hints.items() if get_origin(hint) in (list, tuple))

    @functools.cached_property
    def integer_parameters(self) -> frozenset[str]:
        """The parameters that are whole numbers."""
        hints = get_type_hints(self.parameters)
        return frozenset(name for name, hint in hints.items() if int in (hint, *get_args(hint)))

    @property
    def path_parameters(self) -> list[str]:
        """The fields that the path names."""
        return [part.strip("{}").partition(":")[0] for part in self.path.split("/") if part.startswith("{")]


@dataclass(frozen=True)
class ConcurrencyLimits:
    """What all routes share."""

    threads: anyio.CapacityLimiter
    """For what is parameters."""
    poll_threads: anyio.CapacityLimiter
    """Threads for poll_threads at what is followed; few, so that whoever asks waits for none of them."""
    streams: anyio.CapacityLimiter
    """Places for those who follow."""


def encode_hook(value: Any) -> str:
    """What msgspec cannot encode by itself.

    Raises:
        NotImplementedError: Nor can this.
    """
    if isinstance(value, Path):
        return str(value)
    raise NotImplementedError(type(value))


def encode_json(value: Any) -> bytes:
    """As JSON. Names of files need not be UTF-8: what of them is none is replaced."""
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
    """The route as the application takes it."""

    async def endpoint(request: Request) -> Response:
        try:
            parameters = _parse_parameters(route, request, await request.body())
            if route.answer is EventStream:
                return await stream_response(route, parameters, limits)
            found = await anyio.to_thread.run_sync(execute, route, parameters, limiter=limits.threads)
            if isinstance(found, FileContent):
                return _file_response(found)
            return Response(encode_json(found), status_code=route.status, media_type="application/json")
        except Exception as error:  # noqa: BLE001  - whatever it is, the client gets an answer
            return failure_response(error)

    made = StarletteRoute(prefix + route.path, endpoint, methods=[route.method], name=route.name)
    # Names of tasks and of files may hold a line break, and a path that ends with one is another path.
    made.path_regex = re.compile(made.path_regex.pattern.removesuffix("$") + r"\Z", re.DOTALL)
    made.methods = {route.method}  # without HEAD, which would follow a stream and show nothing of it
    return made


def execute(route: Route, parameters: RequestParameters) -> Any:
    """Does it; of what changes something the journal gets a line."""
    found = route.run(parameters)
    if route.method != "GET":
        request_journal.add_entry(route.name, parameters, found)
    return found


def failure_response(error: Exception) -> Response:
    """The answer to a request that was not carried out."""
    answered = _to_logged_http_error(error)
    return Response(
        encode_json(ErrorResponse(answered.problem)),
        status_code=answered.status,
        media_type="application/json",
    )


def _to_logged_http_error(error: Exception) -> HttpError:
    """The answer that an error stands for; the log gets what no answer tells."""
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
            raise HttpError(400, "malformed", "a query is for GET", fix="put it into the body")
        given = request_body.parse_json_object(data) if data else {}
    if twice := given.keys() & path_parameters.keys():
        raise HttpError(400, "malformed", "the path says it already", field=min(twice), fix="leave it out")
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
    """Whether it has ended, and what is new, as it is sent: who reads slowly holds no more than that."""
    has_ended = stream.has_ended  # asked first: what came before the end is in what is new
    return has_ended, [
        b"id: %s\nevent: %s\ndata: %s\n\n" % (one.cursor.encode(), one.kind.encode(), encode_json(one.data))
        for one in stream.read_new()
    ]


class _EventStreamResponse(StreamingResponse):
    """A stream that has one of the places: at its end, however that comes, it is closed and that free."""

    def __init__(self, stream: EventStream, limits: ConcurrencyLimits, place: object) -> None:
        super().__init__(server_sent_events(stream, limits.poll_threads), media_type="text/event-stream")
        self._stream, self._streams, self._place = stream, limits.streams, place

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._streams.release_on_behalf_of(self._place)
            self._stream.close()


async def stream_response(route: Route, parameters: RequestParameters, limits: ConcurrencyLimits) -> Response:
    """The stream that is asked for.

    Raises:
        Answered: 503; all places are taken.
    """
    place = object()
    try:
        limits.streams.acquire_on_behalf_of_nowait(place)
    except anyio.WouldBlock:
        fix = "end some, or ask for pages from a cursor on"
        raise HttpError(503, "busy", "too many streams are followed at once", fix=fix) from None
    try:
        found = await anyio.to_thread.run_sync(execute, route, parameters, limiter=limits.threads)
        return _EventStreamResponse(found, limits, place)
    except BaseException:
        limits.streams.release_on_behalf_of(place)
        raise


async def server_sent_events(
    stream: EventStream, poll_threads: anyio.CapacityLimiter
) -> AsyncIterator[bytes]:
    """A stream as server-sent events; ``end`` is the last of one that has ended, ``error`` of one that cannot
    go on."""
    quiet = since_beat = 0.0
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
            quiet = since_beat = 0.0
            continue
        if has_ended:
            yield b"event: end\ndata: {}\n\n"
            return
        pause = min(max(_POLL_SECONDS, quiet * _POLL_FRACTION), _MAX_POLL_SECONDS)
        await asyncio.sleep(pause)
        quiet, since_beat = quiet + pause, since_beat + pause
        if since_beat >= _KEEPALIVE_SECONDS:
            since_beat = 0.0
            yield b": \n\n"
