from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import Sequence
from typing import Any

import pytest

from roost.base.errors import Refused
from roost.serve.http import request_middleware
from roost.serve.http.request_middleware import LOCAL_STATE_KEY, MAX_BODY_BYTES, Message, RequestMiddleware
from tests.messages import Messages

TOKEN = "t" * 43
Header = tuple[bytes, bytes]
HOST: Header = (b"host", b"localhost:9999")
GOOD: Sequence[Header] = (HOST, (b"authorization", b"Bearer " + TOKEN.encode()))
JSON: Header = (b"content-type", b"application/json")


class Behind:
    """What the gate guards: it answers 204, and keeps the bodies that it was given."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.bodies.append((await receive())["body"])
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})


class Asked:
    """A gate, and what came of the requests to it."""

    def __init__(self, **given: Any) -> None:
        self.behind, self.logged = Behind(), list[tuple[str, str, int]]()
        usual: dict[str, Any] = {"token": lambda: TOKEN, "port": 9999}
        self.gate = RequestMiddleware(
            self.behind, log_request=lambda *line: self.logged.append(line[:3]), **usual | given
        )

    def __call__(
        self,
        headers: Sequence[Header] = GOOD,
        *,
        method: str = "GET",
        path: str = "/x",
        body: Sequence[bytes] = (b"",),
        state: dict[str, Any] | None = None,
        kind: str = "http",
    ) -> tuple[int, Any]:
        sent: list[Message] = []
        left = [{"type": "http.request", "body": one, "more_body": True} for one in body]
        left[-1]["more_body"] = False

        async def receive() -> Message:
            if not left:
                await asyncio.Event().wait()
            return left.pop(0)

        async def send(message: Message) -> None:
            sent.append(message)

        scope = {"type": kind, "method": method, "path": path, "headers": headers, "state": state or {}}
        asyncio.run(self.gate(scope, receive, send))
        if sent[0]["type"] != "http.response.start":
            return 0, sent[0]
        self.closes = (b"connection", b"close") in sent[0]["headers"]
        found = sent[1]["body"]
        return sent[0]["status"], json.loads(found)["error"] if found else None


def test_the_token_lets_in_and_the_body_is_given_on_once() -> None:
    asked = Asked()
    assert asked() == (204, None)
    headers = [*GOOD, JSON]
    assert asked(headers, method="POST", body=[b'{"a":', b" 1}"])[0] == 204
    assert asked.behind.bodies == [b"", b'{"a": 1}']
    assert asked.logged == [("GET", "/x", 204), ("POST", "/x", 204)]


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ([HOST], 401, "token"),
        ([HOST, (b"authorization", b"Bearer " + TOKEN[:-1].encode())], 401, "token"),
        ([HOST, (b"authorization", TOKEN.encode())], 401, "token"),
        ([*GOOD, GOOD[1]], 400, "malformed"),
        ([GOOD[1]], 403, "host"),
        ([GOOD[1], (b"host", b"localhost")], 403, "host"),
        ([*GOOD, (b"origin", b"null")], 403, "origin"),
        ([*GOOD, (b"sec-fetch-site", b"cross-site")], 403, "origin"),
        ([*GOOD, (b"content-length", b"1048577")], 413, "too_large"),
        ([*GOOD, (b"content-length", b"\xb2")], 400, "malformed"),
        ([*GOOD, (b"content-length", b"1"), (b"transfer-encoding", b"chunked")], 400, "malformed"),
        ([*GOOD, *((b"x", b"y" * 100) for _ in range(200))], 431, "too_large"),
        ([*GOOD, (b"content-encoding", b"gzip")], 415, "content_encoding"),
    ],
)
def test_refused_requests(headers: Sequence[Header], status: int, code: str) -> None:
    asked = Asked()
    found, error = asked(headers)
    assert (found, error["code"]) == (status, code) and not asked.behind.bodies
    assert asked.closes == (code in ("malformed", "too_large", "slow")), "where the next request begins"


def test_host_comes_before_the_token_and_size_before_both() -> None:
    asked = Asked()
    assert asked([(b"host", b"evil")])[1]["code"] == "host"
    assert asked([(b"host", b"evil"), (b"content-length", b"9999999")])[1]["code"] == "too_large"
    assert asked([HOST, (b"origin", b"http://evil")])[1]["code"] == "origin"


def test_the_usual_port_may_be_left_out() -> None:
    usual = Asked(port=80)
    for name in ("localhost", "127.0.0.1", "localhost:80", "127.0.0.1:80"):
        host = (b"host", name.encode())
        assert usual([host, GOOD[1], (b"origin", b"http://" + host[1])])[0] == 204
    for name in ("roost", "evil", "localhost:9999", "localhost:", ""):
        assert usual([(b"host", name.encode()), GOOD[1]])[1]["code"] == "host"


def test_a_page_of_our_own_may_ask() -> None:
    own = [(b"origin", b"http://localhost:9999"), (b"sec-fetch-site", b"same-origin")]
    assert Asked()([*GOOD, *own])[0] == 204


@pytest.mark.parametrize(
    "state",
    [{}, {LOCAL_STATE_KEY: False}, {LOCAL_STATE_KEY: None}, {LOCAL_STATE_KEY: "no"}, {LOCAL_STATE_KEY: 1}],
)
def test_only_local_connections_need_no_token(state: dict[str, Any]) -> None:
    assert Asked()([HOST], state=state)[0] == 401
    assert Asked()([(b"host", b"roost")], state={LOCAL_STATE_KEY: True})[0] == 204


def test_content(messages: Messages) -> None:
    asked = Asked(form_paths=frozenset({"/run_train"}))
    form, text = (b"content-type", b"application/x-www-form-urlencoded"), (b"content-type", b"text/plain")
    for method in ("POST", "PUT", "PATCH", "DELETE", "TRACE", "FOO"):
        for kind in (form, text):
            assert asked([*GOOD, kind], method=method, body=[b"a"])[1]["code"] == "content_type"
    assert asked([*GOOD, form], method="POST", path="/run_train", body=[b"a=1"])[0] == 204
    assert asked([*GOOD, text], method="POST", path="/run_train", body=[b"a=1"])[0] == 415
    assert asked([*GOOD, (b"content-length", b"0")], method="POST")[0] == 204
    assert asked(GOOD, method="POST")[0] == 204, "as curl -X POST asks"
    untyped = asked([*GOOD, (b"transfer-encoding", b"chunked")], method="POST", body=[b"{}"])
    assert untyped[0] == 415 and "`Content-Type: application/json`" in untyped[1]["fix"]
    messages.check(untyped[1])
    assert asked([*GOOD, (b"content-type", b"application/json; charset=utf-8")], method="POST")[0] == 204


def test_a_body_that_is_too_long_or_does_not_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked()
    many = [b"x" * (MAX_BODY_BYTES // 4)] * 5
    assert asked([*GOOD, JSON, (b"transfer-encoding", b"chunked")], method="POST", body=many)[0] == 413
    monkeypatch.setattr(request_middleware, "BODY_SECONDS", 0.01)

    async def never() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    with pytest.raises(request_middleware.HttpError) as caught:
        asyncio.run(request_middleware._read_body({}, never))
    assert caught.value.status == 408


def test_tokens_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each one whole, and by nothing else: neither its length nor its beginning decides before."""
    compared: list[tuple[bytes, bytes]] = []
    compare = request_middleware.hmac.compare_digest

    def shown(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return compare(one, other)

    monkeypatch.setattr(request_middleware.hmac, "compare_digest", shown)
    given = [b"", b"t", b"x" * 43, TOKEN[:-1].encode(), TOKEN.encode() + b"t", b"\xff" * 43, TOKEN.encode()]
    asked = Asked()
    found = [asked([HOST, (b"authorization", b"Bearer " + one)])[0] for one in given]
    assert found == [401] * 6 + [204] and compared == [(one, TOKEN.encode()) for one in given]


def test_too_many_wrong_tokens_are_limited_and_the_right_one_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, now = Asked(), 1000.0
    monkeypatch.setattr(request_middleware.time, "monotonic", lambda: now)
    assert [asked([HOST])[0] for _ in range(25)] == [401] * 20 + [429] * 5
    assert len(asked.logged) == 20, "nor does the log grow"
    assert asked()[0] == 204
    now += 11
    assert asked([HOST])[0] == 401


def test_a_token_that_cannot_be_read_refuses_every_request(capfd: pytest.CaptureFixture[str]) -> None:
    def token() -> str:
        raise Refused("others may read it", where="/secret/place")

    asked = Asked(token=token)
    status, error = asked()
    assert (status, error["code"]) == (500, "token_file") and "/secret" not in str(error)
    assert "/secret/place" in capfd.readouterr().err
    assert asked([(b"host", b"roost")], state={LOCAL_STATE_KEY: True})[0] == 204


def test_without_a_descriptor_for_the_token_it_is_busy(capfd: pytest.CaptureFixture[str]) -> None:
    def token() -> str:
        raise OSError(errno.EMFILE, "Too many open files", "/secret/place")

    status, error = Asked(token=token)()
    assert (status, error["code"]) == (503, "busy")
    assert capfd.readouterr().err == "", "nor does the log grow with it"


def test_a_web_socket_is_closed() -> None:
    assert Asked()(kind="websocket") == (0, {"type": "websocket.close", "code": 1008})
