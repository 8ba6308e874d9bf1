"""The ASGI application: all routes behind `RequestMiddleware`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as StarletteRoute

from roost.serve.http import error_response, openapi, route, unknown_route
from roost.serve.http.error_response import HttpError
from roost.serve.http.request_middleware import App, RequestMiddleware
from roost.serve.routes import analyzers, dlnest_routes, lab_stream, machine, run_records, runs, tasks

PREFIX = "/api/v1"
ROUTES = (
    *machine.ROUTES,
    *lab_stream.ROUTES,
    *runs.ROUTES,
    *run_records.ROUTES,
    *tasks.ROUTES,
    *analyzers.ROUTES,
)
_NUM_THREADS, _NUM_POLL_THREADS = 16, 4
_MAX_STREAMS = 150
"""Fewer than the connections, so that short requests are still answered."""


def create_app(*, token: Callable[[], str], port: int | None, log_request: Callable[..., None]) -> App:
    """Returns the application that answers every request of a server.

    Args:
        token: Returns the current token.
        port: The port of the TCP socket.
        log_request: As for `RequestMiddleware`.
    """
    limits = (_NUM_THREADS, _NUM_POLL_THREADS, _MAX_STREAMS)
    concurrency = route.ConcurrencyLimits(*(anyio.CapacityLimiter(one) for one in limits))
    described = msgspec.json.encode(openapi.openapi_document(ROUTES, prefix=PREFIX))

    async def document(request: Request) -> Response:
        return Response(described, media_type="application/json")

    async def unknown(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        refused, headers = unknown_route.unknown_route_error(request, error, PREFIX)
        response = route.failure_response(refused)
        response.headers.update(headers)
        return response

    async def broken(request: Request, error: Exception) -> Response:
        return route.failure_response(HttpError(500, "internal", str(error_response.to_http_error(error))))

    handlers: Any = {HTTPException: unknown, Exception: broken}
    app = Starlette(
        routes=[
            StarletteRoute(f"{PREFIX}/openapi.json", document),
            *(route.to_starlette(one, PREFIX, concurrency) for one in ROUTES),
            *(dlnest_routes.to_starlette(one, concurrency.threads) for one in dlnest_routes.ROUTES),
        ],
        exception_handlers=handlers,
    )
    app.router.redirect_slashes = False
    patterns = [one.path_regex for one in app.routes if isinstance(one, StarletteRoute)]
    return RequestMiddleware(
        app,
        token=token,
        port=port,
        form_paths=dlnest_routes.FORM_PATHS,
        has_route=lambda path: any(one.match(path) for one in patterns),
        log_request=log_request,
    )
