"""`--trust`, of the commands that load a checkpoint whose values of own classes are pickled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def trust_option(command: F) -> F:
    """Adds ``--trust`` to a command."""
    add = click.option(
        "--trust",
        is_flag=True,
        help="Read pickled objects of a checkpoint that another user wrote: they may run any code.",
    )
    return add(command)
