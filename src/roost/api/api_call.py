"""What a method asks of the server, apart from who waits for the answer: each is said once, for both."""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Mapping
from dataclasses import dataclass
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload
from urllib.parse import quote

from roost.base.errors import UsageError
from roost.operations.responses import Piece

T = TypeVar("T")
P = ParamSpec("P")


@dataclass(frozen=True)
class Call(Generic[T]):
    """One request."""

    method: str
    path: str
    given: Mapping[str, Any]
    """The query of a GET, else the body; without what nobody has said."""
    answer: type[T]
    """``bytes``: as it comes."""


@dataclass(frozen=True)
class Following(Generic[T]):
    """A stream."""

    path: str
    given: Mapping[str, Any]
    data: type[T]


class Blocking(Protocol):
    """Who waits for an answer."""

    def do(self, call: Call[T]) -> T: ...

    def follow(self, following: Following[T]) -> Generator[Piece[T], None, None]: ...


class Awaiting(Protocol):
    """Who goes on meanwhile."""

    def do(self, call: Call[T]) -> Coroutine[Any, Any, T]: ...

    def follow(self, following: Following[T]) -> AsyncGenerator[Piece[T], None]: ...


class operation(Generic[P, T]):
    """Makes a method of both clients from a function that says what is asked."""

    def __init__(self, asks: Callable[Concatenate[Any, P], Call[T]]) -> None:
        self.asks = asks
        functools.update_wrapper(self, asks)  # type: ignore[arg-type]

    @overload
    def __get__(self, client: None, owner: type) -> operation[P, T]: ...

    @overload
    def __get__(self, client: Blocking, owner: type) -> Callable[P, T]: ...

    @overload
    def __get__(self, client: Awaiting, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...

    def __get__(self, client: Any, owner: type) -> Any:
        return self if client is None else _method(self.asks, client, client.do)


class stream(Generic[P, T]):
    """The same for what is followed."""

    def __init__(self, asks: Callable[Concatenate[Any, P], Following[T]]) -> None:
        self.asks = asks
        functools.update_wrapper(self, asks)  # type: ignore[arg-type]

    @overload
    def __get__(self, client: None, owner: type) -> stream[P, T]: ...

    @overload
    def __get__(self, client: Blocking, owner: type) -> Callable[P, Generator[Piece[T], None, None]]: ...

    @overload
    def __get__(self, client: Awaiting, owner: type) -> Callable[P, AsyncGenerator[Piece[T], None]]: ...

    def __get__(self, client: Any, owner: type) -> Any:
        return self if client is None else _method(self.asks, client, client.follow)


def get(path: str, answer: type[T], **given: Any) -> Call[T]:
    """A question."""
    return Call("GET", path, _said(given), answer)


def post(path: str, answer: type[T], **given: Any) -> Call[T]:
    """An order."""
    return Call("POST", path, _said(given), answer)


def followed(path: str, data: type[T], **given: Any) -> Following[T]:
    """What comes from now on."""
    return Following(path, _said(given), data)


def part(text: str) -> str:
    """A text as one part of a path.

    Raises:
        UsageError: It holds half of a character.
    """
    try:
        quoted = quote(text, safe="")
    except UnicodeEncodeError:
        raise half_of_a_character(text) from None
    return quoted.replace(".", "%2E") if text in (".", "..") else quoted  # else it would be another path


def half_of_a_character(text: str) -> UsageError:
    """That a text cannot be sent."""
    return UsageError("a text holds half of a character", received=text, fix="write it anew")


def _said(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None}


def _method(asks: Callable[..., Any], client: Any, do: Callable[[Any], Any]) -> Callable[..., Any]:
    @functools.wraps(asks)
    def method(*args: Any, **kwargs: Any) -> Any:
        return do(asks(client, *args, **kwargs))

    return method
