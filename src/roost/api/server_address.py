"""Where the server is, and what lets a client in."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from roost.base import safe_read
from roost.base.errors import NotFound, Refused, UsageError
from roost.base.system import state_folder
from roost.base.system.loopback import is_loopback
from roost.lab.background import background_process

SOCKET, TOKEN, ABOUT = "server.sock", "server.token", "server.json"
PREFIX = "/api/v1"
_MOST_BYTES = 1024
_USUAL_PORT = 80
"""Of HTTP, where a URL names none."""
_OWN_HOSTS = ("localhost", "127.0.0.1")
"""Where a server of this user may be; at another address of the loopback others may listen at its port."""
_TOKEN = re.compile(rf"[!-~]{{1,{_MOST_BYTES}}}")


class _Served(background_process.ProcessRecord, frozen=True, kw_only=True):
    """What a server tells of itself."""

    port: int


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
        token: None: that in ``ROOST_SERVER_TOKEN``, else that of this user's own server, if it is meant.

    Raises:
        UsageError: It is no URL of a server, or no token.
        Refused: The token would cross a network in the clear; or its file may be read by others.
        NotFound: There is no token.
    """
    folder = state_folder.lab_folder()
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
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        fix = f"ssh -L 9999:localhost:9999 {parts.hostname}, and Client('http://localhost:9999')"
        raise Refused("the token would cross the network where others can read it", received=url, fix=fix)
    found = token or os.environ.get("ROOST_SERVER_TOKEN")
    is_own = parts.scheme == "http" and parts.hostname in _OWN_HOSTS
    found = found or _own(folder, (parts.port or _USUAL_PORT) if is_own else None)
    if not _TOKEN.fullmatch(found):  # and it is told to nobody, as its mistake may be a small one
        fix = "give what `roost server token` prints, and nothing more"
        raise UsageError("this is no token of a server", setting="token", fix=fix)
    base = url.rstrip("/").removesuffix(PREFIX)  # `roost server status` shows it with that
    return Place(base, None, found)


def no_url(why: str = "") -> UsageError:
    """That no server is meant; without the URL, in which a password may stand.

    Args:
        why: What is wrong with it.
    """
    what = "is no URL of a server" + (f" ({why})" if why else "")
    return UsageError(what, setting="url", fix="write http://localhost:9999")


def _own(folder: Path, port: int | None) -> str:
    """That of this user's own server, if it listens at this port: whoever else does would get his account."""
    try:
        state_folder.require_owner_and_mode(folder / TOKEN, 0o600)
        found = (
            bytes(safe_read.read(folder / TOKEN, max_bytes=_MOST_BYTES)).decode("ascii", "replace").strip()
        )
    except FileNotFoundError:
        found = ""
    own = background_process.find_running(folder / ABOUT, _Served)
    if found and own is not None and own.port == port:
        return found
    what = "there is no token for this server"
    if found:
        where = "does not run" if own is None else f"listens at port {own.port}"
        what += f": your own {where}, and another one must not see its token"
    fix = "give token=…, or set ROOST_SERVER_TOKEN to what `roost server token` prints on its machine"
    raise NotFound(what, fix=fix)
