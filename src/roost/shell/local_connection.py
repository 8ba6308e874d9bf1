"""A connection to the lab of this user without a server: the routes of the server, carried out in this
process."""

from __future__ import annotations

import re
import time
from collections.abc import Generator, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

import msgspec
from starlette.routing import compile_path

from roost.api import error_mapping
from roost.api.api_call import ApiRequest, StreamRequest
from roost.api.client_methods import ClientMethods
from roost.base.errors import NotFound, RoostError
from roost.operations.responses import ErrorResponse, StreamEvent
from roost.serve.app import ROUTES
from roost.serve.http import error_response, request_body, request_command, route
from roost.serve.http.error_response import HttpError
from roost.serve.http.route import FileContent, Route
from roost.shell.lab_connection import LabConnection

T = TypeVar("T")

_POLL_SECONDS = 0.05


class LocalClient(ClientMethods):
    """The client of a server, without the server: its operations are carried out in this process.

    Attributes:
        typed_words: The words of the line that asks for it, which a new package records.
    """

    typed_words: Sequence[str] = ()

    def _path(self, given: Path | str) -> str:
        return str(Path(given).absolute())

    def do(self, call: ApiRequest[T]) -> T:
        """Carries out a request and returns its answer.

        Raises:
            RoostError: The operation failed.
        """
        with request_command.typed_line(self.typed_words):
            found = _execute(call.method, call.path, dict(call.given))
        if isinstance(found, FileContent):
            return b"".join(found.chunks())  # type: ignore[return-value]
        return msgspec.json.decode(route.encode_json(found), type=call.answer)

    def follow(self, following: StreamRequest[T]) -> Generator[StreamEvent[T], None, None]:
        """Yields the pieces of a stream until it ends."""
        stream = _execute("GET", following.path, dict(following.given))
        try:
            while True:
                has_ended = stream.has_ended  # read first: what came before the end is in the new data
                found = stream.read_new()
                yield from found
                if has_ended and not found:
                    return
                if not found:
                    time.sleep(_POLL_SECONDS)
        finally:
            stream.close()

    def close(self) -> None:
        """Does nothing: there is no connection."""


class LocalConnection(LabConnection):
    """The lab of this user."""

    def __init__(self) -> None:
        self._local = LocalClient()
        super().__init__(self._local, place="the lab of this machine", has_own_files=True)

    def set_typed_words(self, words: Sequence[str]) -> None:
        self._local.typed_words = words


def connect() -> LabConnection:
    """Returns a connection to the lab of this user."""
    return LocalConnection()


def _execute(method: str, path: str, given: dict[str, Any]) -> Any:
    """Carries out a request as the server does.

    Raises:
        RoostError: The operation failed.
    """
    found, in_path = _find_route(method, unquote(path))
    try:
        parameters = request_body.convert_parameters(found.parameters, {**given, **in_path}, strict=False)
        return route.execute(found, parameters)
    except HttpError as error:
        body = msgspec.json.encode(ErrorResponse(error.problem))
        raise error_mapping.response_error(error.status, body) from None
    except RoostError:
        raise
    except OSError as error:
        refused = error_response.to_http_error(error)
        raise RoostError(refused.message) from error


def _find_route(method: str, path: str) -> tuple[Route, dict[str, Any]]:
    for found, pattern in _patterns(method):
        if (match := pattern.fullmatch(path)) is not None:
            return found, match.groupdict()
    raise NotFound(f"there is no route {method} {path}")


@cache
def _patterns(method: str) -> list[tuple[Route, re.Pattern[str]]]:
    return [*_compiled(method)]


def _compiled(method: str) -> Iterator[tuple[Route, re.Pattern[str]]]:
    for one in ROUTES:
        if one.method == method:
            pattern = compile_path(one.path)[0].pattern
            yield one, re.compile(pattern.removesuffix("$"), re.DOTALL)
