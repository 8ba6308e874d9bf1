"""The OpenAPI document of all routes, built from the same rows and types that serve the requests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from roost import __version__
from roost.operations.responses import ErrorResponse, StreamEvent
from roost.serve.http.route import EventStream, FileContent, Route

_REF = "#/components/schemas/{name}"


def openapi_document(routes: Sequence[Route], *, prefix: str) -> dict[str, Any]:
    """Returns the OpenAPI 3.1 document.

    Args:
        routes: All routes.
        prefix: The prefix of their paths.
    """
    answers = [route.answer for route in routes if route.answer not in (EventStream, FileContent)]
    kinds = [ErrorResponse, StreamEvent, *answers, *(route.parameters for route in routes)]
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_REF, schema_hook=_path_schema)
    by_kind = dict(zip(map(_type_key, kinds), schemas, strict=True))
    paths: dict[str, Any] = {}
    for route in routes:
        schema = components[route.parameters.__name__]
        path = prefix + route.path.replace(":path}", "}")
        paths.setdefault(path, {})[route.method.lower()] = _operation(route, schema, by_kind)
    return {
        "openapi": "3.1.0",
        "info": {"title": "roost", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _operation(route: Route, schema: dict[str, Any], by_kind: dict[str, Any]) -> dict[str, Any]:
    properties = schema["properties"]
    required = set(schema.get("required", ()))
    in_query = (
        [name for name in properties if name not in route.path_parameters] if route.method == "GET" else []
    )
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": properties[name]}
        for name in route.path_parameters
    ] + [
        {"name": name, "in": "query", "required": name in required, "schema": properties[name]}
        for name in in_query
    ]
    found: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "parameters": parameters,
        "responses": {
            str(route.status): {
                "description": "The request was carried out.",
                "content": _answer_content(route, by_kind),
            },
            "default": {
                "description": "The request failed; the code says why.",
                "content": {"application/json": {"schema": by_kind[_type_key(ErrorResponse)]}},
            },
        },
    }
    if route.method != "GET":
        body = _body_schema(route, schema)
        found["requestBody"] = {
            "required": bool(body.get("required")),
            "content": {"application/json": {"schema": body}},
        }
    return found


def _body_schema(route: Route, schema: dict[str, Any]) -> dict[str, Any]:
    """Returns the schema of the body: the parameters that are not in the path."""
    left = {name: one for name, one in schema["properties"].items() if name not in route.path_parameters}
    required = [name for name in schema.get("required", ()) if name in left]
    return {
        "type": "object",
        "properties": left,
        "additionalProperties": False,
        **({"required": required} if required else {}),
    }


def _answer_content(route: Route, by_kind: dict[str, Any]) -> dict[str, Any]:
    if route.answer is FileContent:
        return {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
    if route.answer is EventStream:
        return {"text/event-stream": {"schema": {"type": "string"}}}
    return {"application/json": {"schema": by_kind[_type_key(route.answer)]}}


def _type_key(kind: Any) -> str:
    return repr(kind)


def _path_schema(kind: type) -> dict[str, Any]:
    if issubclass(kind, Path):
        return {"type": "string"}
    raise NotImplementedError(kind)
