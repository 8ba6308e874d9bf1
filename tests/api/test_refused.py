from __future__ import annotations

import json

import msgspec
import pytest

from roost.api import refused
from roost.base.errors import ConfigError, ContractError, NotFound, Refused, RoostError, UsageError
from roost.operations.answers import Failed
from roost.serve import refusal


@pytest.mark.parametrize("kind", [UsageError, NotFound, ConfigError, ContractError, Refused, RoostError])
def test_what_an_operation_raises_is_raised_by_the_client(kind: type[RoostError]) -> None:
    raised = kind("is wrong", setting="lr", received=3, where="config.yaml:4", fix="give another")
    answered = refusal.of(raised)
    found = refused.of(answered.status, msgspec.json.encode(Failed(answered.problem)))
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
    body = {"error": {"code": code, "message": "it is wrong", "field": "gpus", "fix": "mend it", "new": 1}}
    found = refused.of(422, json.dumps(body).encode())
    assert type(found) is kind and str(found) == "gpus: it is wrong. To mend it: mend it"
    body["error"] |= {"field": "run", "message": "is no id of a run"}
    assert str(refused.of(422, json.dumps(body).encode())).startswith("run: is no id of a run")


def test_a_wrong_token_is_mended_where_the_client_is_made() -> None:
    body = {"error": {"code": "token", "message": "it is wrong", "fix": "send the header"}}
    found = refused.of(401, json.dumps(body).encode())
    assert type(found) is Refused and str(found).startswith("it is wrong. To mend it: give token=…")


def test_an_answer_of_something_else() -> None:
    assert "no roost server" in str(refused.of(404, b"<html>"))
    assert "too many connections" in str(refused.of(503, b"Service Unavailable"))


def test_silence_says_whether_something_may_have_happened() -> None:
    assert "may do what was asked" in str(refused.silent(5, is_question=False))
    assert "try again" in str(refused.silent(5, is_question=True))
