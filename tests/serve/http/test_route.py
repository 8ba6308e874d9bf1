from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from starlette.requests import ClientDisconnect

from roost.base.errors import Refused
from roost.operations.responses import ErrorResponse, StreamEvent
from roost.serve.http import route
from roost.serve.http.error_response import HttpError
from roost.serve.http.route import Route
from roost.serve.routes.event_streams import ReadLog
from roost.serve.routes.run_files import open_file
from roost.serve.routes.runs import ListRuns
from roost.serve.routes.tasks import ListTasks


class Few:
    """A stream of three pieces, in two looks."""

    def __init__(self) -> None:
        self.left, self.is_closed = [["a", "b"], [], ["c"]], False

    @property
    def has_ended(self) -> bool:
        return not self.left

    def read_new(self) -> Sequence[StreamEvent[Any]]:
        return [StreamEvent(one, "letter", {"is": one}) for one in (self.left.pop(0) if self.left else [])]

    def close(self) -> None:
        self.is_closed = True


def sent(stream: Any, most: int = 100) -> list[bytes]:
    async def collected() -> list[bytes]:
        found: list[bytes] = []
        pieces = route.server_sent_events(stream, anyio.CapacityLimiter(1))
        async for piece in pieces:
            found.append(piece)
            if len(found) == most:
                await pieces.aclose()  # type: ignore[attr-defined]
        return found

    return asyncio.run(collected())


def test_an_error_in_a_stream_is_its_last_event(capsys: pytest.CaptureFixture[str]) -> None:
    few = Few()

    def damaged() -> Sequence[StreamEvent[Any]]:
        raise Refused("the package is damaged", where="runs/x", fix="`roost verify runs/x`")

    few.read_new = damaged  # type: ignore[method-assign]
    (last,) = sent(few)
    begun, _, data = last.partition(b"data: ")
    assert begun == b"event: error\n"
    problem = msgspec.json.decode(data, type=ErrorResponse).error
    assert (problem.message, problem.where) == ("the package is damaged", "runs/x")
    assert (problem.fix, capsys.readouterr().err) == ("`roost verify runs/x`", "")


def test_a_stream_is_sent_whole() -> None:
    few = Few()
    assert sent(few) == [
        b'id: a\nevent: letter\ndata: {"is":"a"}\n\n',
        b'id: b\nevent: letter\ndata: {"is":"b"}\n\n',
        b'id: c\nevent: letter\ndata: {"is":"c"}\n\n',
        b"event: end\ndata: {}\n\n",
    ]


@pytest.mark.parametrize("goes", [False, True])
def test_a_stream_counts_against_the_limit_until_it_ends(goes: bool) -> None:
    def row(run: Any) -> Route:
        return Route(
            name="x",
            path="/x",
            summary="",
            parameters=route.RequestParameters,
            answer=route.EventStream,
            run=run,
        )

    async def answered() -> None:
        limits = route.ConcurrencyLimits(*(anyio.CapacityLimiter(1) for _ in range(3)))
        with pytest.raises(ZeroDivisionError):
            await route.stream_response(row(lambda _: 1 / 0), route.RequestParameters(), limits)
        few = Few()
        first = await route.stream_response(row(lambda _: few), route.RequestParameters(), limits)
        with pytest.raises(HttpError) as caught:
            await route.stream_response(row(lambda _: Few()), route.RequestParameters(), limits)
        assert (caught.value.status, caught.value.problem.code) == (503, "busy")

        async def send(message: Any) -> None:
            if goes:
                raise OSError

        scope = {"type": "http", "asgi": {"spec_version": "2.4"}}
        with contextlib.suppress(OSError, ClientDisconnect):
            await first(scope, asyncio.Event().wait, send)
        assert limits.streams.available_tokens == 1 and few.is_closed

    asyncio.run(answered())


def test_a_quiet_stream_says_that_it_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route, "_KEEPALIVE_SECONDS", 0.1)
    few = Few()
    assert b": \n\n" in sent(few)


def test_a_quiet_stream_is_polled_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time after a twentieth of the silence, but never later than after half a second."""
    pauses: list[float] = []

    async def slept(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(route.asyncio, "sleep", slept)
    few = Few()
    few.left = [["a"], *([] for _ in range(200)), ["b"], []]
    assert len([one for one in sent(few) if one.startswith(b"id: ")]) == 2
    assert pauses[:20] == [0.1] * 20 and pauses[:200] == sorted(pauses[:200])
    assert pauses[199] == 0.5 and pauses[200] == 0.1


def test_a_line_break_in_data_begins_no_field() -> None:
    one = Few()
    one.left = [["a"]]
    one.read_new = lambda: [StreamEvent("a", "output", {"text": "x\n\ndata: evil\r\nid: 9"})]  # type: ignore[method-assign]
    (found,) = sent(one, 1)
    assert found.count(b"\n") == 4 and b"\r" not in found


def test_names_that_are_no_utf_8_are_shown() -> None:
    assert route.encode_json({"a": [os.fsdecode(b"x\xff")], "\udcff": Path("/p")}) == b'{"a":["x?"],"?":"/p"}'
    assert route.encode_json(float("nan")) == b"null"
    with pytest.raises(NotImplementedError):
        route.encode_json(object())


def test_a_route_knows_the_kinds_of_its_parameters() -> None:
    def row(asked: Any, path: str = "/x") -> Route:
        return Route(name="x", path=path, summary="", parameters=asked, answer=None, run=lambda _: None)

    assert row(ListTasks).list_parameters == {"state"} and row(ListTasks).integer_parameters == {
        "offset",
        "limit",
    }
    assert row(ListRuns).list_parameters == frozenset()
    assert row(ReadLog, "/runs/{run}/log/{path:path}").path_parameters == ["run", "path"]


def test_a_file_that_is_not_read_is_closed(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        open_file(tmp_path, "a").close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_an_unforeseen_error_is_answered(capsys: pytest.CaptureFixture[str]) -> None:
    found = route.failure_response(ZeroDivisionError("secret"))
    assert found.status_code == 500 and b"secret" not in bytes(found.body)
    assert "secret" in capsys.readouterr().err
    assert msgspec.json.decode(bytes(found.body))["error"]["code"] == "internal"
