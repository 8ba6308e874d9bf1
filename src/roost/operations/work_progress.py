"""Progress of work on many things: the code that works reports it, the program that started it shows it.

A command installs a function (`shown_by`); without one, as in a server, reports cost a lookup and nothing
is shown.
"""

# Standard library only

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")
Show = Callable[[str, int, int], None]
"""Receives what is done ("reading packages"), how many things are done, and of how many."""

_show: ContextVar[Show | None] = ContextVar("show", default=None)


def report(what: str, done: int, total: int) -> None:
    """Reports that ``done`` of ``total`` things are done."""
    if (show := _show.get()) is not None:
        show(what, done, total)


def track(things: Collection[T], what: str) -> Iterator[T]:
    """Yields the things, and reports each when the next one is taken.

    Args:
        things: The things.
        what: What is done with them, such as "reading packages".
    """
    show = _show.get()
    if show is None:
        yield from things
        return
    for done, thing in enumerate(things):
        show(what, done, len(things))
        yield thing
    show(what, len(things), len(things))


@contextmanager
def shown_by(show: Show) -> Iterator[None]:
    """Installs the function that shows the progress of what is called inside."""
    token = _show.set(show)
    try:
        yield
    finally:
        _show.reset(token)
