from __future__ import annotations

import json
import re
from typing import Any

import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings

from roost.serve import openapi
from roost.serve.app import PREFIX, ROUTES
from tests.serve.servers import Server

DOCUMENT = openapi.document(ROUTES, prefix=PREFIX)
SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)
OPERATIONS = {
    one.ok().label: one.ok()
    for one in SCHEMA.get_all_operations()
    if "text/event-stream" not in str(one.ok().definition.raw["responses"])  # a stream has no end
}


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
        assert names == set(route.asked.__struct_fields__)
        assert (one["operationId"], one["summary"]) == (route.name, route.summary)
        assert {*one["responses"]} == {str(route.status), "default"}


def test_all_that_it_refers_to_is_in_it() -> None:
    referred = set(re.findall(r"'#/components/schemas/([^']+)'", str(DOCUMENT)))
    assert referred <= DOCUMENT["components"]["schemas"].keys()
    assert DOCUMENT["security"] == [{"token": []}]


def _tried(server: Server, label: str, examples: int) -> None:
    """Sends what the document allows, and what it does not: no answer is a server's error, and each one is of
    the kind that the document says."""

    @hypothesis.given(OPERATIONS[label].as_strategy())
    @settings(
        max_examples=examples, deadline=None, derandomize=examples < 100, database=None,
        phases=[Phase.generate], suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    def sent(case: Any) -> None:
        kept = _harmless(case)
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

    sent()


def _harmless(case: Any) -> Any:
    """Stops no lab and makes nothing outside of a test: what names a place for something new names none."""
    if isinstance(case.body, dict) and {"folder", "config"} & case.body.keys():
        case.body |= {name: "nowhere" for name in ("folder", "config") if name in case.body}
    return case


@pytest.mark.parametrize("label", sorted(OPERATIONS))
def test_what_is_asked_at_random_is_answered_as_described(server: Server, label: str) -> None:
    _tried(server, label, 4)


@pytest.mark.soak
@pytest.mark.parametrize("label", sorted(OPERATIONS))
def test_what_is_asked_at_random_for_long(server: Server, label: str) -> None:
    _tried(server, label, 1000)
