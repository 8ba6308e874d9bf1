"""The answer to a path or a method that no route has, with the nearest route."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import Route as StarletteRoute

from roost.base.text.suggestions import did_you_mean
from roost.serve.http.error_response import HttpError

_CODES = {404: "not_found", 405: "method"}


def unknown_route_error(
    request: Request, error: HTTPException, prefix: str
) -> tuple[HttpError, Mapping[str, str]]:
    """Returns the answer to a request without a route, and the headers of the answer.

    Args:
        request: The request.
        error: The error of the application.
        prefix: The prefix of roost's own routes.
    """
    routes = [one for one in request.app.routes if isinstance(one, StarletteRoute)]
    path = str(request.scope["path"])
    code = _CODES.get(error.status_code, "failed")
    everything = f"see GET {prefix}/openapi.json for all routes"
    methods = _allowed_methods(path, routes)
    if code == "method":
        what, fix = f"this route does not accept {request.method[:20]}", f"use {', '.join(methods)}; "
        return HttpError(405, code, what, fix=fix + everything), {"allow": ", ".join(methods)}
    if code == "not_found":
        fix = _suggestion(path, [one.path for one in routes], prefix) + everything
        return HttpError(404, code, "there is no such route", fix=fix), {}
    return HttpError(error.status_code, code, error.detail), error.headers or {}


def _allowed_methods(path: str, routes: Sequence[StarletteRoute]) -> list[str]:
    """Returns the methods of all routes of a path."""
    return sorted({method for one in routes if one.path_regex.match(path) for method in one.methods or ()})


def _suggestion(path: str, routes: Sequence[str], prefix: str) -> str:
    """Returns the nearest route as the beginning of a fix. If the path lacks only the prefix, or has it where
    it should not, that is the suggestion; otherwise paths are compared without the common prefix, which
    saves time."""
    other = path.removeprefix(prefix) if path.startswith(prefix) else f"{prefix}{path}"
    if other in routes:
        return did_you_mean(other, [other])
    if not path.startswith(prefix):
        return did_you_mean(path, [one for one in routes if not one.startswith(prefix)])
    own, length = path.removeprefix(prefix), len(path) - len(prefix)
    if not own.strip("/"):
        return ""
    like = dict.fromkeys(
        _fill_in_parameters(own, one.removeprefix(prefix)) for one in routes if one.startswith(prefix)
    )
    near = did_you_mean(own, [one for one in like if abs(len(one) - length) <= max(1, length // 3)])
    return near.replace("'/", f"'{prefix}/", 1)


def _fill_in_parameters(path: str, route: str) -> str:
    """Returns the path of a route with its parameters replaced by the parts of ``path``."""
    given, parts = path.rstrip("/").split("/"), route.split("/")
    if len(given) != len(parts):
        return route.replace(":path}", "}")
    return "/".join(one if part.startswith("{") else part for one, part in zip(given, parts, strict=True))
