from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from roost.api.api_call import (
    ApiRequest,
    StreamRequest,
    get,
    operation,
    path_segment,
    post,
    stream,
    stream_request,
)
from roost.base.errors import UsageError
from roost.operations.responses import StreamEvent
from tests.messages import Messages


class Table:
    @operation
    def double(self, number: int, *, name: str | None = None) -> ApiRequest[int]:
        """Twice."""
        return get(f"/{number}", int, number=number, name=name)

    @stream
    def count(self) -> StreamRequest[int]:
        """On and on."""
        return stream_request("/count", int)


class Blocks(Table):
    def do(self, call: ApiRequest[Any]) -> Any:
        return call.given["number"] * 2

    def follow(self, following: StreamRequest[Any]) -> Iterator[StreamEvent[Any]]:
        yield StreamEvent("1", following.path, 1)


class Awaits(Table):
    async def do(self, call: ApiRequest[Any]) -> Any:
        return call.given["number"] * 2

    async def follow(self, following: StreamRequest[Any]) -> AsyncIterator[StreamEvent[Any]]:
        yield StreamEvent("1", following.path, 1)


def test_one_function_is_a_method_that_waits_and_one_that_is_awaited() -> None:
    async def awaited() -> tuple[int, list[Any]]:
        return await Awaits().double(4), [one async for one in Awaits().count()]

    expected = [StreamEvent("1", "/count", 1)]
    assert (Blocks().double(4), list(Blocks().count())) == (8, expected)
    assert asyncio.run(awaited()) == (8, expected)


def test_a_method_tells_what_it_does_on_the_class_too() -> None:
    assert Blocks.double.__doc__ == Blocks().double.__doc__ == "Twice."
    assert Blocks.count.__doc__ == "On and on."


def test_what_nobody_has_said_is_not_sent() -> None:
    assert Table.double.build_request(None, 3) == ApiRequest("GET", "/3", {"number": 3}, int)
    assert post("/x", int, a=None, b=False, c=()) == ApiRequest("POST", "/x", {"b": False, "c": ()}, int)


def test_a_part_of_a_path_stays_one(messages: Messages) -> None:
    assert path_segment("a/b?c#d%2F é") == "a%2Fb%3Fc%23d%252F%20%C3%A9"
    assert [path_segment(text) for text in (".", "..", "...", "a.b")] == ["%2E", "%2E%2E", "...", "a.b"]
    with pytest.raises(UsageError, match=r"'\\ud800'") as refused:
        path_segment("\ud800")
    messages.check(refused.value)
