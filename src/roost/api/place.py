"""Where the server is, and what lets a client in."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from roost.base import regular
from roost.base.errors import NotFound, Refused, UsageError
from roost.base.loopback import is_here
from roost.lab import place

SOCKET, TOKEN = "server.sock", "server.token"
_MOST_BYTES = 1024
_TOKEN = re.compile(rf"[!-~]{{1,{_MOST_BYTES}}}")


class Place(NamedTuple):
    """A server."""

    url: str
    socket: Path | None = None
    """Of this user; nobody else can reach it, and it wants no token."""
    token: str | None = None

    def __str__(self) -> str:
        return str(self.socket or self.url)

    def __repr__(self) -> str:
        return f"Place({self!s})"  # a token must not get into a log


def find(url: str | None, token: str | None) -> Place:
    """The server that is meant.

    Args:
        url: None: that of this user, on this machine.
        token: None: that in ``ROOST_SERVER_TOKEN``, else that of this user's own server.

    Raises:
        UsageError: It is no URL of a server, or no token.
        Refused: The token would cross a network in the clear; or its file may be read by others.
        NotFound: There is no token.
    """
    folder = place.folder()
    if url is None:
        if token is not None:
            raise UsageError("a token is for a server that is reached by its URL", fix="give the url, too")
        return Place("http://roost", folder / SOCKET)
    try:
        parts = urlsplit(url)
        is_port = parts.port != 0
    except ValueError as error:
        raise no_url(str(error)) from None
    is_plain = not (parts.username or parts.password or parts.query or parts.fragment)
    is_typed = url.isprintable() and " " not in url and is_port
    if parts.scheme not in ("http", "https") or not parts.hostname or not is_plain or not is_typed:
        raise no_url()
    if parts.scheme == "http" and not is_here(parts.hostname):
        fix = f"ssh -L 9999:localhost:9999 {parts.hostname}, and Client('http://localhost:9999')"
        raise Refused("the token would cross the network where others can read it", received=url, fix=fix)
    found = token or os.environ.get("ROOST_SERVER_TOKEN") or _own(folder / TOKEN)
    if not _TOKEN.fullmatch(found):  # and it is told to nobody, as its mistake may be a small one
        fix = "give what `roost server token` prints, and nothing more"
        raise UsageError("this is no token of a server", setting="token", fix=fix)
    return Place(url.rstrip("/"), None, found)


def no_url(why: str = "") -> UsageError:
    """That no server is meant; without the URL, in which a password may stand.

    Args:
        why: What is wrong with it.
    """
    what = "is no URL of a server" + (f" ({why})" if why else "")
    return UsageError(what, setting="url", fix="write http://localhost:9999")


def _own(path: Path) -> str:
    try:
        place.require_own(path, 0o600)
        return bytes(regular.read(path, at_most=_MOST_BYTES)).decode("ascii", "replace").strip()
    except FileNotFoundError:
        fix = "give token=…, or set ROOST_SERVER_TOKEN to what `roost server token` prints on its machine"
        raise NotFound("there is no token for this server", fix=fix) from None
