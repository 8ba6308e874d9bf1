"""Parameters as DLNest's clients send them: in the query, as a form, or as JSON."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl

from starlette.requests import Request

from roost.serve.http import request_body
from roost.serve.http.error_response import HttpError
from roost.serve.http.route import RequestParameters, Route

_MAX_FIELDS = 1000
_FIELD_HEADER = re.compile(rb'content-disposition: *form-data; *name="([^"\r\n]*)"', re.IGNORECASE)
_BOUNDARY = re.compile(r'multipart/form-data; *boundary=(?:"([^"]{1,70})"|([^\s;"]{1,70}))', re.IGNORECASE)


def parse_parameters(route: Route, request: Request, data: bytes) -> RequestParameters:
    """Returns the checked parameters of a request; numbers and booleans may be text.

    Args:
        route: The route of the request.
        request: The request, with its query and content type.
        data: The body.

    Raises:
        HttpError: The body cannot be parsed, or a parameter is unknown, missing, repeated or of another type.
    """
    pairs = request_body.parse_query(request.scope["query_string"])
    kind = request.headers.get("content-type", "")
    given = {}
    if kind.partition(";")[0].strip().lower() == "application/json":
        given = request_body.parse_json_object(data) if data else {}
    elif data:
        pairs += (
            _multipart_pairs(data, kind) if kind.lower().startswith("multipart/") else _urlencoded_pairs(data)
        )
    named = request_body.query_parameters(pairs, route.list_parameters)
    if twice := given.keys() & named.keys():
        raise HttpError(400, "malformed", f"{min(twice)} is in the query and in the body")
    return request_body.convert_parameters(route.parameters, {**named, **given}, strict=False)


def _urlencoded_pairs(data: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(
            data.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=True,
            errors="strict",
            max_num_fields=_MAX_FIELDS,
        )
    except ValueError as error:
        raise HttpError(400, "malformed", f"the body is not a form: {error}") from None


def _multipart_pairs(data: bytes, kind: str) -> list[tuple[str, str]]:
    """Returns the fields of a multipart form; a file among them is refused."""
    found = _BOUNDARY.fullmatch(kind.strip())
    if found is None:
        raise HttpError(400, "malformed", "the content type of the form has no boundary")
    between = b"\r\n--" + (found[1] or found[2]).encode("latin-1", "replace")
    before, *parts = (b"\r\n" + data).split(between, _MAX_FIELDS + 1)
    if before or not parts or parts[-1].rstrip(b"\r\n") != b"--":
        raise HttpError(400, "malformed", f"the form has no end, or more than {_MAX_FIELDS} fields")
    fields = []
    for part in parts[:-1]:
        head, blank, value = part.partition(b"\r\n\r\n")
        name = _FIELD_HEADER.fullmatch(head.removeprefix(b"\r\n"))
        if not blank or name is None:
            raise HttpError(400, "malformed", "a part of the form is not a plain field")
        try:
            fields.append((name[1].decode(), value.decode()))
        except UnicodeDecodeError:
            raise HttpError(400, "malformed", "a field of the form is not UTF-8") from None
    return fields
