"""The stream from the server, when what answers is no server, or one that breaks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from roost.base.errors import Refused, UsageError
from roost.operations.live_lab.lab_change import LabChange, LabReset
from roost.operations.live_lab.lab_state import LabState
from roost.tui.connection import LabLink
from tests.tui.generated_lab import small_lab

_SECONDS = 100.0


class Listener:
    """What the client is told."""

    def __init__(self) -> None:
        self.lab: LabState | None = None
        self.states: list[str] = []
        self.link: LabLink | None = None

    def connected(self, client: Any, lab: LabState) -> None:
        self.lab = lab

    def received(self, changes: Sequence[LabChange]) -> None:
        pass

    def link_changed(self) -> None:
        assert self.link is not None
        self.states.append(f"{self.link.state} {self.link.trouble}".strip())


class ScriptedServer:
    """Answers each connection with the next of some bytes, then closes it; the last answer is repeated."""

    def __init__(self, answers: Sequence[bytes]) -> None:
        self._answers = list(answers)
        self.requests: list[bytes] = []

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            self.requests.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(self._answers.pop(0) if len(self._answers) > 1 else self._answers[0])
            await writer.drain()
        writer.close()


class Link(NamedTuple):
    """A link, what it tells, what it is connected to, and the task that receives."""

    link: LabLink
    listener: Listener
    scripted: ScriptedServer
    running: asyncio.Task[None]


@asynccontextmanager
async def link_to(*answers: bytes) -> AsyncIterator[Link]:
    scripted, listener = ScriptedServer(answers), Listener()
    server = await asyncio.start_server(scripted.answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    link = listener.link = LabLink(f"http://127.0.0.1:{port}", listener)
    running = asyncio.create_task(link.run())
    try:
        yield Link(link, listener, scripted, running)
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError, Refused, UsageError):
            await running
        server.close()


async def until(condition: Callable[[], object], running: asyncio.Task[None]) -> None:
    async def wait() -> None:
        while not condition():
            assert not running.done(), running
            await asyncio.sleep(0.01)

    await asyncio.wait_for(wait(), _SECONDS)


def reply(status: str, body: bytes, kind: str = "application/json") -> bytes:
    head = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def events(*data: bytes, end: bytes = b"\n\n") -> bytes:
    """A stream of events that is cut off after the last one."""
    pieces = [b"id: 0123abcd-%d\nevent: changes\ndata: %s%s" % (at, one, end) for at, one in enumerate(data)]
    body = b"".join(pieces)
    return b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + body


def problem(code: str, message: str) -> bytes:
    return msgspec.json.encode({"error": {"code": code, "message": message}})


WHOLE = msgspec.json.encode([LabReset(), *small_lab()])
DEEP = b"[" * 100_000 + b"]" * 100_000


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ROOST_SERVER_TOKEN", "t" * 40)
    monkeypatch.setenv("ROOST_STATE", str(tmp_path))


@pytest.mark.parametrize(
    ("broken", "trouble"),
    [
        (b"", "broke"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "broke"),
        (b"\x00\xff" * 5000, "broke"),
        (reply("200 OK", b"<html>hello</html>", "text/html"), ""),
        (reply("500 Internal Server Error", problem("internal", "a disk is full")), "a disk is full"),
        (reply("500 Internal Server Error", b"\xff\xfe"), "not from a roost server"),
        (reply("404 Not Found", b"<html>"), "not from a roost server"),
        (reply("503 Service Unavailable", problem("too_many_streams", "too many")), ""),
        (events(b"not json"), "cannot decode"),
        (events(b'[{"type":"a change of a later version"}]'), "cannot decode"),
        (events(b'[{"type":"reset","x":%s}]' % DEEP), "cannot decode"),
        (events(b"\xff\xfe[]"), "cannot decode"),
        (events(WHOLE, end=b""), ""),
        (events(WHOLE[:-5], end=b""), ""),
    ],
)
def test_a_stream_that_breaks_begins_again(broken: bytes, trouble: str) -> None:
    async def body() -> None:
        async with link_to(broken, events(WHOLE)) as (_, listener, _, running):
            await until(lambda: listener.lab is not None and listener.lab.is_known, running)
            assert listener.states[-1].startswith(("live", "lost"))
            if trouble:
                assert any(one.startswith("lost ") and trouble in one for one in listener.states)
            assert listener.lab is not None and listener.lab.find("T_12")

    asyncio.run(body())


def test_a_server_without_the_right_token_ends_the_client() -> None:
    async def body() -> None:
        async with link_to(reply("401 Unauthorized", problem("token", "the token is wrong"))) as (
            *_,
            running,
        ):
            with pytest.raises(Refused, match="ROOST_SERVER_TOKEN"):
                await asyncio.wait_for(running, _SECONDS)

    asyncio.run(body())


def test_a_cursor_that_another_version_does_not_know_is_forgotten() -> None:
    refusal = reply("422 Unprocessable Entity", problem("invalid", "cursor: is not one"))

    async def body() -> None:
        async with link_to(events(WHOLE), refusal, events(WHOLE)) as (_, listener, scripted, running):
            await until(lambda: len(scripted.requests) >= 3, running)
            first, second, third, *_ = [one.split(b" ")[1] for one in scripted.requests]
            assert b"0123abcd-0" in second
            assert b"0123abcd" not in first + third
            assert listener.lab is not None and listener.lab.find("T_12")
        async with link_to(refusal) as (*_, running):
            with pytest.raises(UsageError, match="cursor"):
                await asyncio.wait_for(running, _SECONDS)

    asyncio.run(body())
