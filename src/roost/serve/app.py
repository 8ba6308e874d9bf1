"""The application: all routes behind the gate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as Matched

from roost.serve.http import error_response, openapi, route, unknown_route
from roost.serve.http.error_response import Answered
from roost.serve.http.request_middleware import App, Gate
from roost.serve.routes import document000, machine, run_records, runs, tasks

PREFIX = "/api/v1"
ROUTES = (*machine.ROUTES, *runs.ROUTES, *run_records.ROUTES, *tasks.ROUTES)
_THREADS, _LOOKS = 16, 4
_MOST_STREAMS = 150
"""Fewer than there may be connections: whoever asks something short finds room."""


def application(*, token: Callable[[], str], port: int | None, log: Callable[..., None]) -> App:
    """Everything that a server answers.

    Args:
        token: Gives the token as it is now.
        port: Of its TCP socket.
        log: As of `Gate`.
    """
    limits = (_THREADS, _LOOKS, _MOST_STREAMS)
    room = route.Room(*(anyio.CapacityLimiter(one) for one in limits))
    described = msgspec.json.encode(openapi.document(ROUTES, prefix=PREFIX))

    async def document(request: Request) -> Response:
        return Response(described, media_type="application/json")

    async def unknown(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        said, headers = unknown_route.answered(request, error, PREFIX)
        answered = route.failed(said)
        answered.headers.update(headers)
        return answered

    async def broken(request: Request, error: Exception) -> Response:
        return route.failed(Answered(500, "internal", str(error_response.of(error))))

    handlers: Any = {HTTPException: unknown, Exception: broken}
    app = Starlette(
        routes=[
            Matched(f"{PREFIX}/openapi.json", document),
            *(route.matched(one, PREFIX, room) for one in ROUTES),
            *(document000.matched(one, room.threads) for one in document000.ROUTES),
        ],
        exception_handlers=handlers,
    )
    app.router.redirect_slashes = False
    return Gate(app, token=token, port=port, forms=document000.FORMS, log=log)
