from __future__ import annotations

import json

import msgspec
import pytest

from roost.api import error_mapping
from roost.base.errors import ConfigError, ContractError, NotFound, Refused, RoostError, UsageError
from roost.operations.responses import ErrorResponse
from roost.serve.http import error_response
from tests.messages import Messages


@pytest.mark.parametrize("kind", [UsageError, NotFound, ConfigError, ContractError, Refused, RoostError])
def test_what_an_operation_raises_is_raised_by_the_client(kind: type[RoostError]) -> None:
    raised = kind("is wrong", setting="lr", received=3, where="config.yaml:4", fix="give another")
    answered = error_response.to_http_error(raised)
    found = error_mapping.response_error(
        answered.status, msgspec.json.encode(ErrorResponse(answered.problem))
    )
    assert type(found) is kind and str(found) == str(raised)
    assert (found.setting, found.where, found.fix) == ("lr", "config.yaml:4", "give another")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("invalid", UsageError), ("malformed", UsageError), ("host", Refused),
        ("disk_full", RoostError), ("of_the_future", RoostError),
    ],
)  # fmt: skip
def test_what_the_server_itself_refuses(code: str, kind: type[RoostError]) -> None:
    body = {"error": {"code": code, "message": "it is wrong", "field": "gpus", "fix": "do it", "new": 1}}
    found = error_mapping.response_error(422, json.dumps(body).encode())
    assert type(found) is kind and (found.summary, found.fix) == ("gpus: it is wrong", "do it")
    body["error"] |= {"field": "run", "message": "is no id of a run"}
    assert str(error_mapping.response_error(422, json.dumps(body).encode())).startswith(
        "run: is no id of a run"
    )


def test_a_wrong_token_is_mended_where_the_client_is_made(messages: Messages) -> None:
    body = {"error": {"code": "token", "message": "it is wrong", "fix": "send the header"}}
    found = error_mapping.response_error(401, json.dumps(body).encode())
    assert type(found) is Refused and found.message == "it is wrong"
    assert "token=" in str(found.fix) and "ROOST_SERVER_TOKEN" in str(found.fix)
    messages.check(found)


def test_an_answer_of_something_else(messages: Messages) -> None:
    stranger, busy = (
        error_mapping.response_error(404, b"<html>"),
        error_mapping.response_error(503, b"Service Unavailable"),
    )
    assert "404" in str(stranger) and "503" not in str(busy)
    messages.check(stranger)
    messages.check(busy)


def test_silence_says_whether_something_may_have_happened(messages: Messages) -> None:
    order, question = (
        error_mapping.timeout_error(5, is_read=False),
        error_mapping.timeout_error(5, is_read=True),
    )
    assert "5 s" in str(order) and "5 s" in str(question) and "timeout_seconds" in str(question)
    messages.check(order)
    messages.check(question)
