"""What is said of a path, or a method, that no route has."""

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
    """The answer, and its headers.

    Args:
        request: That nobody takes.
        error: The application's.
        prefix: Of the routes of roost.
    """
    routes = [one for one in request.app.routes if isinstance(one, StarletteRoute)]
    path = str(request.scope["path"])
    code = _CODES.get(error.status_code, "failed")
    everything = f"GET {prefix}/openapi.json describes what there is"
    methods = _allowed_methods(path, routes)
    if code == "method":
        what, fix = f"this route does not take {request.method[:20]}", f"it takes {', '.join(methods)}; "
        return HttpError(405, code, what, fix=fix + everything), {"allow": ", ".join(methods)}
    if code == "not_found":
        fix = _suggestion(path, [one.path for one in routes], prefix) + everything
        return HttpError(404, code, "there is no such route", fix=fix), {}
    return HttpError(error.status_code, code, error.detail), error.headers or {}


def _allowed_methods(path: str, routes: Sequence[StarletteRoute]) -> list[str]:
    """What the routes of a path take, all of them together."""
    return sorted({method for one in routes if one.path_regex.match(path) for method in one.methods or ()})


def _suggestion(path: str, routes: Sequence[str], prefix: str) -> str:
    """What was probably meant. Where only the prefix is missing, or too much, that is; else the prefix, which
    all have, is not compared: that takes time."""
    other = path.removeprefix(prefix) if path.startswith(prefix) else f"{prefix}{path}"
    if other in routes:
        return did_you_mean(other, [other])
    if not path.startswith(prefix):
        return did_you_mean(path, [one for one in routes if not one.startswith(prefix)])
    own, length = path.removeprefix(prefix), len(path) - len(prefix)
    like = dict.fromkeys(
        _fill_in_parameters(own, one.removeprefix(prefix)) for one in routes if one.startswith(prefix)
    )
    near = did_you_mean(own, [one for one in like if abs(len(one) - length) <= max(1, length // 3)])
    return near.replace("'/", f"'{prefix}/", 1)


def _fill_in_parameters(path: str, route: str) -> str:
    """A route's path, with what was given in the places of its parameters."""
    given, parts = path.rstrip("/").split("/"), route.split("/")
    if len(given) != len(parts):
        return route.replace(":path}", "}")
    return "/".join(one if part.startswith("{") else part for one, part in zip(given, parts, strict=True))
