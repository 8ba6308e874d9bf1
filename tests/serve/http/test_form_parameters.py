"""Forms as clients send them, and forms that must be refused."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from starlette.requests import Request

from roost.serve.http import form_parameters
from roost.serve.http.error_response import HttpError
from roost.serve.http.route import RequestParameters, Route
from tests.messages import Messages


class Given(RequestParameters, frozen=True, kw_only=True):
    number: int = 0
    flag: bool = False
    text: str = ""
    several: tuple[int, ...] = ()


ROUTE = Route(
    name="x", path="/x", summary="", parameters=Given, answer=dict, run=lambda asked: {}, method="POST"
)
TEXT = "ä & = + % \r\n-- \U0001f600"


def read(data: bytes = b"", kind: str = "", query: str = "") -> Any:
    headers = [(b"content-type", kind.encode("latin-1"))] if kind else []
    scope = {
        "type": "http",
        "method": "POST",
        "query_string": query.encode(),
        "headers": headers,
        "path": "/x",
    }
    return form_parameters.parse_parameters(ROUTE, Request(scope), data)


def in_parts(**fields: Any) -> tuple[bytes, str]:
    """As a well-known client makes it."""
    files = [
        (name, (None, str(one)))
        for name, value in fields.items()
        for one in ([value] if not isinstance(value, list) else value)
    ]
    request = httpx.Request("POST", "http://x", files=files)
    return request.read(), request.headers["content-type"]


def test_query_form_and_json_give_the_same_parameters() -> None:
    expected = Given(number=-7, flag=True, text=TEXT, several=(1, 2))
    values = {"number": -7, "flag": True, "text": TEXT, "several": [1, 2]}
    form = urlencode(values, doseq=True)
    assert read(query=form) == expected
    assert read(form.encode(), "application/x-www-form-urlencoded") == expected
    assert read(*in_parts(**values)) == expected
    assert read(json.dumps(values).encode(), "application/json; charset=utf-8") == expected
    texts = {"number": "-7", "flag": "True", "text": TEXT, "several": ["1", "2"]}
    assert read(json.dumps(texts).encode(), "application/json") == expected
    assert (
        read(
            b"number=-7&flag=True",
            "application/x-www-form-urlencoded",
            urlencode({"text": TEXT, "several": [1, 2]}, doseq=True),
        )
        == expected
    )
    assert read() == read(b"", "application/json") == Given()


@pytest.mark.parametrize("text", ["True", "true", "1"])
def test_booleans_are_text(text: str) -> None:
    assert read(query=f"flag={text}").flag and not read(query="flag=False").flag


@pytest.mark.parametrize(
    ("query", "field"),
    [("number=1.5", "number"), ("flag=yes", "flag"), ("other=1", "other"), ("several=1&several=x", "several"),
     ("number=", "number"), ("number=nan", "number"), ("number=" + "9" * 5000, "number")],
)  # fmt: skip
def test_parameters_of_another_type_or_unknown_are_refused(query: str, field: str) -> None:
    with pytest.raises(HttpError) as raised:
        read(query=query)
    assert raised.value.status == 422 and field in f"{raised.value.problem}"


PART = b'--b\r\nContent-Disposition: form-data; name="text"\r\n\r\nx\r\n'


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"text", "application/x-www-form-urlencoded"),
        (b"text=\xff", "application/x-www-form-urlencoded"),
        (b"text=%ff", "application/x-www-form-urlencoded"),
        (b"text=%00", "application/x-www-form-urlencoded"),
        (b"&".join([b"several=1"] * 1001), "application/x-www-form-urlencoded"),
        (b"number=1&number=2", "application/x-www-form-urlencoded"),
        (b"[1]", "application/json"),
        (b'{"text": 1, "text": 2}', "application/json"),
        (PART + b"--b--", "multipart/form-data"),
        (PART, "multipart/form-data; boundary=b"),
        (b"before" + PART + b"--b--", "multipart/form-data; boundary=b"),
        (PART + PART + b"--b--", "multipart/form-data; boundary=b"),
        (PART.replace(b'"text"', b'"text"; filename="x"') + b"--b--", "multipart/form-data; boundary=b"),
        (PART.replace(b"x\r\n", b"\xff\r\n") + b"--b--", "multipart/form-data; boundary=b"),
        (PART.replace(b"\r\n\r\n", b"\r\n") + b"--b--", "multipart/form-data; boundary=b"),
        (b"--b--", "multipart/form-data"),
        (PART * 1002 + b"--b--", "multipart/form-data; boundary=b"),
    ],
)  # fmt: skip
def test_ambiguous_bodies_are_refused(data: bytes, kind: str) -> None:
    with pytest.raises(HttpError) as raised:
        read(data, kind)
    assert (raised.value.status, raised.value.problem.code) == (400, "malformed")


def test_a_parameter_twice_in_two_places(messages: Messages) -> None:
    for data, kind in (
        (b'{"number": 1}', "application/json"),
        (b"number=1", "application/x-www-form-urlencoded"),
    ):
        with pytest.raises(HttpError) as raised:
            read(data, kind, "number=1")
        assert raised.value.problem.code == "malformed"
        messages.check(raised.value)
