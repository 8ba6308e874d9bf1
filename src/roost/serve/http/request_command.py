"""The command that a package records when a route has made it: the request, or the line of a shell that has
carried out the route in its own process."""

from __future__ import annotations

import contextvars
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

_TYPED: contextvars.ContextVar[Sequence[str]] = contextvars.ContextVar("typed", default=())


def request_command(method: str, path: str) -> list[str]:
    """Returns the command to record for a request."""
    return list(_TYPED.get()) or [method, path]


@contextmanager
def typed_line(words: Sequence[str]) -> Iterator[None]:
    """Returns a context in which the words of a line are recorded in place of the requests."""
    token = _TYPED.set(words)
    try:
        yield
    finally:
        _TYPED.reset(token)
