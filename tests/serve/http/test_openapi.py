from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings

from roost.serve.app import PREFIX, ROUTES
from roost.serve.http import openapi
from roost.serve.routes import dlnest_routes
from tests.operations.packages import project
from tests.serve.servers import Server

DOCUMENT = openapi.openapi_document(ROUTES, prefix=PREFIX)


def _operations(document: dict[str, Any]) -> dict[str, Any]:
    """By what they are called, ``GET /lab``; a stream is not among them, as it has no end."""
    found = (one.ok() for one in schemathesis.openapi.from_dict(document).get_all_operations())
    return {
        one.label: one for one in found if "text/event-stream" not in str(one.definition.raw["responses"])
    }


OPERATIONS = _operations(DOCUMENT)
OF_DLNEST = _operations(openapi.openapi_document(dlnest_routes.ROUTES, prefix=""))
NEW_THINGS = ("config", "config_path", "folder", "freq_path", "record_path", "target_dir", "tuning")
"""Fields that name where something new is made, or what it is made from."""
FREE = ("MNIST", "description", "priority", "retries", "time_limit")
"""Fields that may have any value of their type where something is to succeed."""


def test_every_route_is_described_with_all_its_parameters(server: Server) -> None:
    assert server.get("/openapi.json") == json.loads(json.dumps(DOCUMENT))
    described = {
        (method, path): one for path, methods in DOCUMENT["paths"].items() for method, one in methods.items()
    }
    assert len(described) == len(ROUTES)
    for route in ROUTES:
        one = described[route.method.lower(), PREFIX + route.path.replace(":path}", "}")]
        names = {parameter["name"] for parameter in one["parameters"]}
        if route.method != "GET":
            names |= one["requestBody"]["content"]["application/json"]["schema"]["properties"].keys()
        assert names == set(route.parameters.__struct_fields__)
        assert (one["operationId"], one["summary"]) == (route.name, route.summary)
        assert {*one["responses"]} == {str(route.status), "default"}


def test_all_that_it_refers_to_is_in_it() -> None:
    referred = set(re.findall(r"'#/components/schemas/([^']+)'", str(DOCUMENT)))
    assert referred <= DOCUMENT["components"]["schemas"].keys()
    assert DOCUMENT["security"] == [{"token": []}]


Changed = Callable[[Any], Any]


def _tried(server: Server, operation: Any, examples: int, change: Changed) -> Iterator[Any]:
    """Sends what the document allows: no answer is a server's error, and each one is of the kind that the
    document says. Gives the answers.

    Args:
        server: Where to.
        operation: What.
        examples: How many of it.
        change: Makes of each what may be sent.
    """
    answers = []

    @hypothesis.given(operation.as_strategy())
    @settings(
        max_examples=examples, deadline=None, derandomize=examples < 100, database=None,
        phases=[Phase.generate], suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    def sent(case: Any) -> None:
        kept = change(case)
        found = kept.call(
            base_url=f"http://localhost:{server.about.port}",
            headers={"Authorization": f"Bearer {server.token}"},
        )
        assert found.status_code < 500, found.text
        kept.validate_response(
            found,
            checks=[
                schemathesis.checks.content_type_conformance,
                schemathesis.checks.response_schema_conformance,
            ],
        )
        answers.append(found)

    sent()
    assert answers
    return iter(answers)


def _harmless(case: Any) -> Any:
    """Stops no lab and makes nothing outside of a test: what names a place for something new names none."""
    if isinstance(case.body, dict):
        case.body |= {name: "nowhere" for name in NEW_THINGS if name in case.body}
    return case


def _possible(server: Server) -> dict[str, Changed]:
    """By operation: makes of a random case one that succeeds and changes nothing else."""
    config = server.folder / "project" / "config.yaml"
    if not config.exists():
        project(config.parent)

    def with_fields(made: Callable[[], dict[str, Any]]) -> Changed:
        def changed(case: Any) -> Any:
            given = {name: _taken(value) for name, value in case.body.items() if name in FREE}
            case.body = {**given, **made()}
            return case

        return changed

    def place() -> str:
        return str(server.folder / uuid.uuid4().hex)

    never = {"gpus": 0, "begin": "+1000h"}
    return {
        "POST /api/v1/commands": with_fields(
            lambda: {"command": ["true"], "folder": str(config.parent), "gpus": 0}
        ),
        "POST /api/v1/runs": with_fields(lambda: {"config": str(config), **never}),
        "POST /api/v1/projects": with_fields(lambda: {"folder": place(), "template": "clean"}),
        "POST /new_proj": with_fields(lambda: {"target_dir": place()}),
    }


def _taken(value: Any) -> Any:
    """Without what the document cannot exclude: 1.0 is an integer there, NUL is text, and so are signs alone,
    of which no folder can be called."""
    if isinstance(value, str):
        return f"a{value[:900]}".replace("\0", "")
    return int(value) if isinstance(value, float) and value.is_integer() else value


POSSIBLE = ("POST /api/v1/commands", "POST /api/v1/projects", "POST /api/v1/runs", "POST /new_proj")


def _succeed(server: Server, label: str, examples: int) -> None:
    operation = (OPERATIONS | OF_DLNEST)[label]
    for answer in _tried(server, operation, examples, _possible(server)[label]):
        assert answer.status_code in (200, 201) and answer.json().get("status") != "error", answer.text


def _answer_as_dlnest(server: Server, label: str, examples: int) -> None:
    for answer in _tried(server, OF_DLNEST[label], examples, _harmless):
        shown = answer.json()
        if answer.status_code == 200:  # else the gate has refused it
            assert shown["status"] == ("error" if "error" in shown else "success"), shown
            assert shown.get("code") not in ("failed", "internal"), shown


@pytest.mark.parametrize("label", sorted(OPERATIONS))
def test_what_is_asked_at_random_is_answered_as_described(server: Server, label: str) -> None:
    _tried(server, OPERATIONS[label], 4, _harmless)


@pytest.mark.parametrize("label", sorted(OF_DLNEST))
def test_what_dlnest_allows_is_answered_as_it_wants(server: Server, label: str) -> None:
    _answer_as_dlnest(server, label, 4)


@pytest.mark.parametrize("label", POSSIBLE)
def test_what_is_possible_at_random_is_done(server: Server, label: str) -> None:
    _succeed(server, label, 3)


@pytest.mark.soak
@pytest.mark.parametrize("label", sorted(OPERATIONS))
def test_what_is_asked_at_random_for_long(server: Server, label: str) -> None:
    _tried(server, OPERATIONS[label], 1000, _harmless)


@pytest.mark.soak
@pytest.mark.parametrize("label", sorted(OF_DLNEST))
def test_what_dlnest_allows_for_long(server: Server, label: str) -> None:
    _answer_as_dlnest(server, label, 1000)


@pytest.mark.soak
@pytest.mark.parametrize("label", POSSIBLE)
def test_what_is_possible_for_long(server: Server, label: str) -> None:
    _succeed(server, label, 200)
