"""The option ``-c``, which names a checkpoint in the same words for every command."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click


def checkpoint_option(what: str = "The checkpoint", *, default: str = "last (default)") -> Callable[..., Any]:
    """Adds ``-c``/``--checkpoint``, parsed by `roost.package.checkpoints.selection`.

    Args:
        what: The beginning of the help.
        default: The first word that the help names.
    """
    help_text = f"{what}: {default}, best, or an id."
    return click.option("-c", "--checkpoint", metavar="ID|best|last", help=help_text)
