"""The token that a client needs over TCP: a file that only its owner can read."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from roost.base import durable, safe_read
from roost.base.errors import Refused
from roost.base.system import state_folder

TOKEN_NAME = "server.token"
_TOKEN_BYTES = 32
_MAX_FILE_BYTES = 1024


def read_or_create_token(folder: Path) -> str:
    """Returns the token of the lab in ``folder``; creates it if there is none.

    Raises:
        Refused: The file belongs to another user, is a link, is damaged, or is readable by other users.
        OSError: The file cannot be read or written.
    """
    path = folder / TOKEN_NAME
    if not os.path.lexists(path):
        return renew_token(folder)
    if path.is_symlink():
        raise Refused("the server's token is a link", where=path, fix="remove it; a new one is created")
    state_folder.require_owner_and_mode(path, 0o600)
    found = bytes(safe_read.read(path, max_bytes=_MAX_FILE_BYTES)).decode("ascii", "replace").strip()
    if len(found) < _TOKEN_BYTES:
        raise Refused("the server's token is damaged", where=path, fix="remove it; a new one is created")
    return found


def renew_token(folder: Path) -> str:
    """Replaces the token by a new one; running servers accept only the new one from then on. Returns it.

    Raises:
        Refused: The folder is not usable.
        OSError: The file cannot be written.
    """
    state_folder.prepare(folder)
    new = secrets.token_urlsafe(_TOKEN_BYTES)
    durable.write(folder / TOKEN_NAME, new.encode() + b"\n", mode=0o600)
    return new
