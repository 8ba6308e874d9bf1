"""Every route, those of the application, against all that is tried on a server of this kind.

| what a server must withstand or show | where |
|---|---|
| no token, a wrong one, one in the query; Host, Origin, forms; bodies, numbers, ids, paths, links | here |
| a body of gigabytes, slow clients, crowds, 10,000 connections that come and go | test_floods.py |
| a link that is put in a file's place meanwhile | routes/test_run_files.py |
| no socket off the host; the token in no log, environment, process list or file | test_server_process.py |
| wrong tokens wait, fill no log, and are compared in constant time | here, http/test_request_middleware.py |
| schemathesis: no error of the server's own; every parameter described | http/test_openapi.py |
| 50 streams over kills and restarts, without a gap or a double | routes/test_event_streams.py, ../api |
| a port in use: the next one or an error; a stale socket, or none | test_{listening_sockets,server_*}.py |
| a state folder, token, socket or log with wrong rights | here, test_{server_*,access_token}.py |
| missing, extra, wrong and absurd parameters; an old client | here, routes/test_dlnest_routes.py |
| where each operation can be reached | test_server_page.py, ../api/test_client_methods.py |
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from roost.serve.app import PREFIX, ROUTES
from roost.serve.http import openapi
from tests import processes
from tests.serve.servers import CUT_OFF, RUN, Server, everything

ALL = everything()
OURS = [(method, path) for method, path in ALL if path.startswith(PREFIX)]
POSTS = [path for method, path in OURS if method == "POST"]
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "CONNECT", "FOO")
REFUSED = (401, 429)
"""Not without the token; and not so often."""


@pytest.fixture(autouse=True, scope="module")
def nothing_happens(server: Server, run: str) -> Iterator[None]:
    """Whatever is tried here, no task is queued, nothing is made or changed, and no operation succeeds."""
    before = {path: server.get(path) for path in ("/tasks?all=true", "/devices", "/lab", "/runs")}
    yield
    assert all(" failed: " in event["text"] for event in server.get("/events"))
    for path, found in before.items():
        assert _steady(server.get(path)) == _steady(found), path


_MEASURED = "memory_used_mb"


def _steady(found: Any) -> Any:
    """Without times, and what is measured of the machine."""
    if isinstance(found, dict):
        return {
            key: _steady(one) for key, one in found.items() if not isinstance(one, float) and key != _MEASURED
        }
    return [_steady(one) for one in found] if isinstance(found, list) else found


@pytest.mark.parametrize("method", METHODS)
def test_nothing_is_open_without_a_token(server: Server, method: str) -> None:
    for path in [*sorted({path for _, path in ALL}), "/", "/nothing", PREFIX + "/nothing", "/metrics", "*"]:
        found = server.ask(method, path, prefix="", local=False)
        assert found.status in REFUSED, (method, path, found.body)
        assert server.token.encode() not in found.body and b"Traceback" not in found.body


WRONG: dict[str, Callable[[str], str]] = {
    "another one": lambda token: "Bearer " + "x" * len(token),
    "its beginning": lambda token: f"Bearer {token[:-1]}",
    "more of it": lambda token: f"Bearer {token}x",
    "twice": lambda token: f"Bearer {token} {token}",
    "empty": lambda token: "Bearer ",
    "no kind": lambda token: token,
    "basic": lambda token: f"Basic {token}",
    "not of ASCII": lambda token: f"Bearer {token}é",
    "many": lambda token: "Bearer " + "x" * 12_000,
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_token_opens_nothing(server: Server, wrong: str) -> None:
    given = WRONG[wrong](server.token)
    for method, path in ALL:
        found = server.ask(method, path, prefix="", local=False, authorization=given)
        assert found.status in REFUSED, (method, path)


def test_the_token_counts_in_its_header_alone(server: Server) -> None:
    token = server.token
    for method, path in ALL:
        asked = [
            f"{path}?token={token}",
            f"{path}?access_token={token}",
            f"{path}?authorization=Bearer%20{token}",
        ]
        found = [server.ask(method, one, prefix="", local=False) for one in asked]
        found.append(server.ask(method, path, prefix="", local=False, cookie=f"token={token}"))
        found.append(
            server.ask(method, path, prefix="", local=False, x_token=token, proxy_authorization=token)
        )
        found.append(server.ask(method, path, {"token": token}, prefix="", local=False))
        assert {one.status for one in found} <= set(REFUSED), (method, path)
    assert token not in server.log


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_needs_the_token_though_the_socket_let_him_in(server: Server) -> None:
    """Its rights were widened by hand, and he has found a way past the folder's."""
    path = server.lab.state / "server.sock"
    found_fd, said = os.open(path, os.O_PATH), os.pipe()
    path.chmod(0o666)
    try:
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                os.setgroups([])
                os.setuid(65534)
                with socket.socket(socket.AF_UNIX) as opened:
                    opened.connect(f"/proc/self/fd/{found_fd}")
                    opened.sendall(f"GET /api/v1 HTTP/1.1\r\nhost: {server.host}\r\n\r\n".encode())
                    os.write(said[1], opened.recv(100))
            os._exit(0)
        os.close(said[1])
        os.waitpid(child, 0)
        assert int(os.read(said[0], 100).split()[1]) in REFUSED
    finally:
        path.chmod(0o600)
        os.close(found_fd)
        os.close(said[0])


def test_a_token_of_a_megabyte_or_with_a_nul(server: Server) -> None:
    for value in (b"x" * 2**20, server.token.encode() + b"\0"):
        head = b"GET /api/v1 HTTP/1.1\r\nhost: %s\r\nauthorization: Bearer " % server.host.encode()
        assert server.raw(head + value + b"\r\n\r\n").status in (400, CUT_OFF)
    assert server.get("") == {"name": "roost", "version": server.about.version}


FOREIGN = {
    "host": [
        "evil.example",
        "localhost.evil.example:{port}",
        "127.0.0.1.nip.io:{port}",
        "0.0.0.0:{port}",
        "localhost",
        "[::1]:{port}",
        "LOCALHOST:{port}",
        "localhost.:{port}",
        "localhost:1",
        "roost",
        "127.0.0.1",
        "127.1:{port}",
    ],
    "origin": [
        "https://evil.example",
        "null",
        "http://localhost:1",
        "https://localhost:{port}",
        "file://",
        "",
    ],
    "sec-fetch-site": ["cross-site", "same-site", "", "none, cross-site"],
}


@pytest.mark.parametrize("header", FOREIGN)
def test_other_pages_and_other_names_are_refused_with_the_token_too(server: Server, header: str) -> None:
    for value in FOREIGN[header]:
        for method, path in ALL:
            more = {header: value.format(port=server.about.port)}
            good = f"Bearer {server.token}"
            found = server.ask(method, path, {}, prefix="", local=False, authorization=good, **more)
            assert found.status == 403, (method, path, value, found.body)


def test_a_host_that_is_missing_or_comes_twice(server: Server) -> None:
    good = f"authorization: Bearer {server.token}\r\n"
    host = f"host: {server.host}\r\n"
    for method, path in ALL:
        for version, headers in (("1.1", ""), ("1.1", host * 2), ("1.1", host + "host: evil.example\r\n")):
            head = f"{method} {path} HTTP/{version}\r\n{headers}{good}\r\n"
            assert server.raw(head.encode()).status == 400, (method, path)
        assert server.raw(f"{method} {path} HTTP/1.0\r\n{good}\r\n".encode()).status == 403


def test_what_a_page_may_send_without_asking_is_no_request_of_ours(server: Server) -> None:
    forms = (
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "text/plain",
        "text/json",
        "",
    )
    for path in POSTS:
        for kind in forms:
            found = server.ask("POST", path, b"config=x", prefix="", content_type=kind)
            assert (found.status, found.code) == (415, "content_type"), path
        found = server.ask("POST", path, b"{}", prefix="", content_encoding="gzip")
        assert (found.status, found.code) == (415, "content_encoding")


def test_every_answer_has_its_headers(server: Server) -> None:
    for path in ("/api/v1", "/api/v1/nothing", "/", "/api/v1/openapi.json"):
        for local in (True, False):
            headers = server.ask("GET", path, prefix="", local=local).headers
            assert headers["cache-control"] == "no-store" and headers["x-content-type-options"] == "nosniff"
            assert "frame-ancestors 'none'" in headers["content-security-policy"]
            assert not {"access-control-allow-origin", "set-cookie", "server", "location"} & {*headers}


def test_a_method_is_no_header(server: Server) -> None:
    more = {
        "x_http_method_override": "POST",
        "x_forwarded_for": "127.0.0.1",
        "x_forwarded_host": server.host,
        "x_forwarded_proto": "https",
        "forwarded": "for=127.0.0.1",
        "x_original_url": "/api/v1/lab",
    }
    assert server.ask("GET", "/runs", **more).json.keys() == {"total", "runs"}
    assert server.ask("GET", "", local=False, host="evil.example", **more).status == 403
    assert server.ask("GET", "/lab", local=False, **more).status in REFUSED


# --- bodies -----------------------------------------------------------------------------------------------

MALFORMED = {
    "nothing": b" ",
    "half": b'{"a": ',
    "an array": b"[]",
    "null": b"null",
    "a text": b'"x"',
    "a number": b"1",
    "nan": b'{"priority": NaN}',
    "infinite": b'{"priority": -Infinity}',
    "too large": b'{"priority": 1e999}',
    "digits": b'{"priority": ' + b"9" * 5000 + b"}",
    "deep": b'{"a":' * 100_000,
    "deep lists": b"[" * 500_000,
    "deep and closed": b'{"a":' * 70 + b"1" + b"}" * 70,
    "twice": b'{"task": "a", "task": "b"}',
    "twice inside": b'{"a": {"b": 1, "b": 2}}',
    "half a character": b'{"task": "\\ud800"}',
    "half in a key": b'{"\\udfff": 1}',
    "nul": b'{"name": "a\\u0000b"}',
    "bom": b"\xef\xbb\xbf{}",
    "utf-16": '{"a": 1}'.encode("utf-16"),
    "latin-1": b'{"name": "\xe9"}',
    "garbage behind": b"{} x",
    "two": b"{}{}",
    "comments": b"{} // x",
    "single quotes": b"{'a': 1}",
    "packed": b"\x1f\x8b\x08\x00",
}


@pytest.mark.parametrize("what", MALFORMED)
def test_a_malformed_body_is_refused_everywhere(server: Server, what: str) -> None:
    for path in POSTS:
        found = server.ask("POST", path, MALFORMED[what], prefix="")
        assert (found.status, found.code) == (400, "malformed"), (path, found.body)


DOCUMENT = openapi.openapi_document(ROUTES, prefix="")["paths"]


def _fields(method: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(path, name, schema) of all parameters outside of paths."""
    for path, methods in DOCUMENT.items():
        filled = path.replace("{run}", RUN).replace("{task}", "nobody").replace("{path}", "a")
        for one in (methods[method],) if method in methods else ():
            if method == "get":
                yield from ((filled, p["name"], p["schema"]) for p in one["parameters"] if p["in"] == "query")
            else:
                body = one["requestBody"]["content"]["application/json"]["schema"]
                yield from ((filled, name, schema) for name, schema in body["properties"].items())


def _kinds(schema: dict[str, Any]) -> set[str]:
    return {one.get("type", "") for one in schema.get("anyOf", [schema])}


NO_NUMBERS = (
    str(2**63), "9" * 400, "1.5", "true", "1e3", "0x10", "", "%201", "+1", "1_0", "nan",
)  # fmt: skip


def test_numbers_of_the_wrong_kind_are_refused_by_name(server: Server) -> None:
    tried = 0
    for path, name, schema in _fields("post"):
        if "integer" in _kinds(schema):
            for value in (2**63, -(2**63), 1.5, True, "1", [1], {}, 10**30):
                found = server.ask("POST", path, {name: value})
                assert (found.status, found.json["error"].get("field")) == (422, name), (path, value)
                tried += 1
    for path, name, schema in _fields("get"):
        if "integer" in _kinds(schema):
            for text in NO_NUMBERS if "'minimum': 0" not in str(schema) else ("-1", *NO_NUMBERS):
                found = server.ask("GET", f"{path}?{name}={text}")
                assert (found.status, found.json.get("error", {}).get("field")) == (422, name), (path, text)
                tried += 1
    assert tried > 80


def test_texts_lists_and_flags_of_the_wrong_kind_are_refused_by_name(server: Server) -> None:
    for path, name, schema in _fields("post"):
        kinds = _kinds(schema)
        wrong: list[Any] = [{"a": 1}, 0.5] if "number" not in kinds else [{"a": 1}, "x"]
        wrong += [[1]] if "array" not in kinds else [[None], "abc"]
        wrong += ["x" * 500_000] if kinds & {"string"} and "maxLength" in str(schema) else []
        for value in wrong:
            found = server.ask("POST", path, {name: value})
            field = str(found.json["error"].get("field"))
            assert found.status == 422 and field.split("[")[0] == name, (path, name, str(value)[:20])
            assert len(found.body) < 10_000


def test_unknown_fields_are_named(server: Server) -> None:
    for method, path in OURS:
        if path.endswith("openapi.json"):
            continue
        for name in ("confg", "__proto__", "__class__"):
            found = (
                server.ask("POST", path, {name: 1}, prefix="")
                if method == "POST"
                else server.ask("GET", f"{path}?{name}=1", prefix="")
            )
            assert (found.status, found.json["error"].get("field")) == (422, name), (path, found.body)


def test_missing_fields_are_named(server: Server) -> None:
    tried = 0
    for path, methods in DOCUMENT.items():
        if "post" not in methods:
            continue
        filled = path.replace("{run}", RUN).replace("{task}", "nobody").replace("{path}", "a")
        schema = methods["post"]["requestBody"]["content"]["application/json"]["schema"]
        if required := schema.get("required", []):
            found = server.ask("POST", filled, {})
            assert (found.status, found.json["error"].get("field")) == (422, required[0]), (path, found.body)
            tried += 1
    assert tried >= 4


def test_a_client_of_another_version_is_refused_and_changes_nothing(server: Server) -> None:
    """What it asks is in another place, by another method or with other parameters: never another thing."""
    for place in ("/api/v0/runs", "/api/v2/runs", "/runs", PREFIX + "/submit"):
        for method in ("GET", "POST"):
            found = server.ask(method, place, {}, prefix="")
            assert (found.status, found.code) == (404, "not_found"), (method, place, found.body)
    for method, path in OURS:
        found = server.ask("PUT", path, {}, prefix="")
        assert (found.status, found.code) == (405, "method"), (path, found.body)
        assert method in found.headers["allow"]
    asked = {"command": ["true"], "folder": str(server.folder), "gpus": 0, "cards_wanted": 1}
    found = server.ask("POST", "/commands", asked)
    assert (found.status, found.json["error"].get("field")) == (422, "cards_wanted")


def test_a_query_says_a_thing_once_and_a_post_has_none(server: Server) -> None:
    assert server.ask("GET", "/runs?limit=1&limit=2").code == "malformed"
    assert server.ask("GET", "/runs?limit=%00").code == "malformed"
    assert server.ask("POST", "/tasks/nobody/hold?x=1", {}).code == "malformed"
    assert server.ask("POST", "/tasks/nobody/hold", {"task": "other"}).json["error"]["field"] == "task"


IDS = [
    "'; DROP TABLE runs;--",
    "%00",
    "..",
    ".",
    "-rf",
    "CON",
    "😀",
    "\u202e",
    "x" * 300,
    "%0d%0aX-Evil:%201",
    "%1b[2J",
    "$(id)",
    "`id`",
    "%25252e",
    "a%2fb",
    "%ff",
    "*",
    "%",
    "__proto__",
]


@pytest.mark.parametrize("id", IDS, ids=range(len(IDS)))
def test_ids_are_names_and_nothing_else(server: Server, id: str) -> None:
    for path in (f"/runs/{id}", f"/runs/{id}/log", f"/runs/{id}/files/a", f"/tasks/{id}/why"):
        found = server.ask("GET", path.replace(" ", "%20"))
        assert found.status in (400, 404, 405, 422), (path, found.body)
        assert "x-evil" not in {name.lower() for name in found.headers}
    for path in (f"/tasks/{id}/kill", f"/runs/{id}/stop", f"/runs/{id}/continue"):
        assert server.ask("POST", path.replace(" ", "%20"), {}).status in (400, 404, 405, 422), path
    assert "\x1b" not in server.log and "\nX-Evil" not in server.log


# --- files ------------------------------------------------------------------------------------------------

OUTSIDE = [
    "../../../../../../etc/passwd",
    "%2e%2e%2f%2e%2e%2fetc/passwd",
    "%252e%252e%252fetc/passwd",
    "..%5c..%5cetc",
    "..;/..;/etc/passwd",
    "%c0%ae%c0%ae/etc/passwd",
    "/etc/passwd",
    "//etc/passwd",
    "./inside",
    "a//b",
    "inside/",
    "inside%00",
    "file:///etc/passwd",
    "C:%5cwindows",
    "%5c%5chost%5cx",
    "../p-secret/secret",
    "..",
    ".",
    "%2e",
    "link",
    "link_to_folder/secret",
    "loop",
    "fifo",
    "socket",
    "folder",
    "a" * 5000,
    "a/" * 1500,
    "inside/x",
]


@pytest.fixture(scope="module")
def run(server: Server) -> str:
    """The id of one with a plain file, and with everything that must not be read."""
    path, id = server.package("p")
    secret = server.package("p-secret")[0] / "secret"
    secret.write_text("root:secret")
    (path / "inside").write_text("inside")
    (path / "folder").mkdir()
    (path / "link").symlink_to(secret)
    (path / "link_to_folder").symlink_to(secret.parent)
    (path / "loop").symlink_to("loop")
    os.mkfifo(path / "fifo")
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path / "socket"))
    (Path(os.fsdecode(os.fsencode(path) + b"/\xff"))).write_text("not UTF-8")
    return id


@pytest.mark.parametrize("path", OUTSIDE, ids=range(len(OUTSIDE)))
def test_nothing_outside_of_a_run_is_read(server: Server, run: str, path: str) -> None:
    found = server.ask("GET", f"/runs/{run}/files/{path}")
    assert found.status in (400, 404, 422), found.body
    assert b"root:" not in found.body


def test_what_is_inside_is_read_and_links_are_shown_as_such(server: Server, run: str) -> None:
    found = server.ask("GET", f"/runs/{run}/files/inside")
    assert (found.status, found.body) == (200, b"inside")
    assert found.headers["content-disposition"] == 'attachment; filename="inside"'
    listed = {one["path"]: one["kind"] for one in server.get(f"/runs/{run}/files")}
    kinds = {
        "request.json": "file",
        "inside": "file",
        "link": "link",
        "link_to_folder": "link",
        "loop": "link",
        "fifo": "other",
    }
    assert listed == {**kinds, "socket": "other", "folder": "folder", "\ufffd": "file"}


# --- much -------------------------------------------------------------------------------------------------


def _chunks(megabytes: int) -> Iterator[bytes]:
    yield b"POST /api/v1/runs HTTP/1.1\r\nhost: roost\r\ncontent-type: application/json\r\n"
    yield b"transfer-encoding: chunked\r\n\r\n"
    for _ in range(megabytes):
        yield b"100000\r\n" + b" " * 2**20 + b"\r\n"
    yield b"0\r\n\r\n"


@pytest.mark.parametrize("megabytes", [32, pytest.param(2048, marks=pytest.mark.soak)])
def test_a_body_without_an_end_costs_nothing(server: Server, megabytes: int) -> None:
    server.get("")
    before = processes.peak_mb(server.about.pid)
    found = server.raw(_chunks(megabytes), local=True)
    assert (found.status, found.code) == (413, "too_large")
    assert processes.peak_mb(server.about.pid) < before + 50


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ("content-length: 2147483648", 413),
        ("content-length: -1", 400),
        ("content-length: 1x", 400),
        ("content-length: " + "9" * 5000, 400),
        ("content-length: 2\r\ncontent-length: 3", 400),
        ("content-length: 2\r\ntransfer-encoding: chunked", 400),
        ("transfer-encoding: gzip", 501),
        ("transfer-encoding: gzip, chunked", 501),
        ("transfer-encoding: chunked\r\ntransfer-encoding: x", 400),
        ("content-length : 2", 400),
        ("bad header", 400),
        ("x: \0", 400),
        ("x" * 20_000 + ": y", 431),
        ("\r\n".join(f"x{n}: y" for n in range(100_000)), 400),
        ("content-length: 1048577", 413),
    ],
    ids=range(15),
)
def test_lengths_and_headers_that_lie(server: Server, headers: str, status: int) -> None:
    head = "POST /api/v1/tasks/x/hold HTTP/1.1\r\nhost: roost\r\ncontent-type: application/json\r\n"
    found = server.raw(f"{head}{headers}\r\n\r\n".encode() + b"{}", local=True)
    assert found.status in (status, 400, CUT_OFF), found.body


def test_a_second_request_hidden_in_a_body_is_none(server: Server) -> None:
    hidden = f"GET /api/v1/lab HTTP/1.1\r\nhost: {server.host}\r\n\r\n"
    head = f"POST /api/v1/runs HTTP/1.1\r\nhost: {server.host}\r\nauthorization: Bearer {server.token}\r\n"
    both = f"{head}content-length: {len(hidden)}\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n{hidden}"
    with server.connect() as opened:
        opened.sendall(both.encode())
        opened.shutdown(socket.SHUT_WR)
        answers = b"".join(iter(lambda: opened.recv(65536), b""))
    assert answers.startswith(b"HTTP/1.1 400") and b" 200 " not in answers


@pytest.mark.parametrize(
    "lie",
    [
        "content-length: 2\r\ntransfer-encoding: chunked",
        "content-length: 2\r\ncontent-length: 3",
        "content-length: 2147483648",
    ],
)
def test_a_connection_ends_where_the_next_request_is_not_certain_to_begin(server: Server, lie: str) -> None:
    head = f"POST /api/v1/runs HTTP/1.1\r\nhost: {server.host}\r\nauthorization: Bearer {server.token}\r\n"
    with server.connect() as opened:
        opened.sendall(f"{head}{lie}\r\n\r\n".encode())  # and the client sends nothing more, nor closes
        opened.settimeout(60)
        answers = b"".join(iter(lambda: opened.recv(65536), b""))
    assert answers.startswith((b"HTTP/1.1 400", b"HTTP/1.1 413")) and answers.count(b"HTTP/1.1 4") == 1


@pytest.mark.parametrize("count", [1000, pytest.param(10_000, marks=pytest.mark.soak)])
def test_wrong_tokens_by_the_thousand(server: Server, count: int) -> None:
    """They are slowed down, the log does not grow with them, and who has the token notices nothing."""
    lines = server.log.count("\n")
    one = f"GET /api/v1 HTTP/1.1\r\nhost: {server.host}\r\nauthorization: Bearer {{}}\r\n\r\n"
    with server.connect() as opened:
        found = []
        for number in range(count):
            opened.sendall(one.format(f"{number:043}").encode())
            found.append(_status(opened))
    assert set(found) <= set(REFUSED) and found.count(429) > 0.9 * count - 20 * 6
    assert server.ask("GET", "", local=False, authorization=f"Bearer {server.token}").status == 200
    assert server.get("")["name"] == "roost"
    assert server.log.count("\n") < lines + 200


def _status(opened: socket.socket) -> int:
    head = b""
    while b"\r\n\r\n" not in head:
        head += opened.recv(65536)
    lengths = [line for line in head.split(b"\r\n") if line.startswith(b"content-length: ")]
    body = head.split(b"\r\n\r\n", 1)[1]
    while len(body) < int(lengths[0].split()[1]):
        body += opened.recv(65536)
    assert "error" in json.loads(body)
    return int(head.split()[1])
