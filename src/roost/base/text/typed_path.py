"""Paths as a person writes them."""

# Standard library only

from __future__ import annotations

import os
from pathlib import Path

from roost.base.errors import NotFound


def typed_path(text: str | os.PathLike[str], *, setting: str | None = None) -> Path:
    """Returns a path in which ``~`` or ``~name`` at the beginning is the home folder of that user. A file
    whose name begins with ``~`` is itself.

    Args:
        text: The path.
        setting: The option or setting that has it, for the message.

    Raises:
        NotFound: There is no such user, or the home folder is unknown.
    """
    path = os.path.expanduser(os.fspath(text))  # noqa: PTH111  - pathlib raises RuntimeError
    if path.startswith("~") and not os.path.lexists(path):
        what = f"there is no home folder {path.partition('/')[0]}"
        raise NotFound(what, setting=setting, received=os.fspath(text), fix="write the whole path")
    return Path(path)
