"""Requests to the server, declared once for the blocking and the asynchronous client."""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Mapping
from dataclasses import dataclass
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload
from urllib.parse import quote

from roost.base.errors import UsageError
from roost.operations.responses import StreamEvent

T = TypeVar("T")
P = ParamSpec("P")


@dataclass(frozen=True)
class ApiRequest(Generic[T]):
    """A request and the type of its answer."""

    method: str
    path: str
    given: Mapping[str, Any]
    """The query of a GET, otherwise the body; arguments that are None are left out."""
    answer: type[T]
    """The type that the answer is decoded to; ``bytes`` is the undecoded body."""


@dataclass(frozen=True)
class StreamRequest(Generic[T]):
    """A request for a stream of events."""

    path: str
    given: Mapping[str, Any]
    data: type[T]


class BlockingTransport(Protocol):
    """A client whose calls block until the answer arrives."""

    def do(self, call: ApiRequest[T]) -> T: ...

    def follow(self, following: StreamRequest[T]) -> Generator[StreamEvent[T], None, None]: ...


class AsyncTransport(Protocol):
    """A client whose calls are awaited."""

    def do(self, call: ApiRequest[T]) -> Coroutine[Any, Any, T]: ...

    def follow(self, following: StreamRequest[T]) -> AsyncGenerator[StreamEvent[T], None]: ...


class operation(Generic[P, T]):
    """Decorator: makes a function that builds an `ApiRequest` a method of both clients."""

    def __init__(self, build_request: Callable[Concatenate[Any, P], ApiRequest[T]]) -> None:
        self.build_request = build_request
        functools.update_wrapper(self, build_request)  # type: ignore[arg-type]

    @overload
    def __get__(self, client: None, owner: type) -> operation[P, T]: ...

    @overload
    def __get__(self, client: BlockingTransport, owner: type) -> Callable[P, T]: ...

    @overload
    def __get__(self, client: AsyncTransport, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...

    def __get__(self, client: Any, owner: type) -> Any:
        return self if client is None else _method(self.build_request, client, client.do)


class stream(Generic[P, T]):
    """Decorator: makes a function that builds a `StreamRequest` a method of both clients."""

    def __init__(self, build_request: Callable[Concatenate[Any, P], StreamRequest[T]]) -> None:
        self.build_request = build_request
        functools.update_wrapper(self, build_request)  # type: ignore[arg-type]

    @overload
    def __get__(self, client: None, owner: type) -> stream[P, T]: ...

    @overload
    def __get__(
        self, client: BlockingTransport, owner: type
    ) -> Callable[P, Generator[StreamEvent[T], None, None]]: ...

    @overload
    def __get__(
        self, client: AsyncTransport, owner: type
    ) -> Callable[P, AsyncGenerator[StreamEvent[T], None]]: ...

    def __get__(self, client: Any, owner: type) -> Any:
        return self if client is None else _method(self.build_request, client, client.follow)


def get(path: str, answer: type[T], **given: Any) -> ApiRequest[T]:
    """Returns a GET request."""
    return ApiRequest("GET", path, _without_none(given), answer)


def post(path: str, answer: type[T], **given: Any) -> ApiRequest[T]:
    """Returns a POST request."""
    return ApiRequest("POST", path, _without_none(given), answer)


def stream_request(path: str, data: type[T], **given: Any) -> StreamRequest[T]:
    """Returns a request for a stream."""
    return StreamRequest(path, _without_none(given), data)


def path_segment(text: str) -> str:
    """Returns a text quoted as one segment of a URL's path.

    Raises:
        UsageError: The text has a lone surrogate.
    """
    try:
        quoted = quote(text, safe="")
    except UnicodeEncodeError:
        raise lone_surrogate_error(text) from None
    return quoted.replace(".", "%2E") if text in (".", "..") else quoted  # unquoted it would change the path


def lone_surrogate_error(text: str) -> UsageError:
    """Returns the error about a text that has no UTF-8 encoding."""
    return UsageError(
        "the text has a lone surrogate, which UTF-8 cannot encode", received=text, fix="type it again"
    )


def _without_none(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None}


def _method(build_request: Callable[..., Any], client: Any, do: Callable[[Any], Any]) -> Callable[..., Any]:
    @functools.wraps(build_request)
    def method(*args: Any, **kwargs: Any) -> Any:
        return do(build_request(client, *args, **kwargs))

    return method
