"""The address of the server and the token that authenticates a client."""

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
from roost.lab.background.background_process import ProcessFiles

SOCKET, TOKEN, ABOUT = "server.sock", "server.token", "server.json"
PREFIX = "/api/v1"
_MOST_BYTES = 1024
_USUAL_PORT = 80
"""The port of HTTP, for a URL without one."""
_OWN_HOSTS = ("localhost", "127.0.0.1")
"""Hosts of this user's own server; at other loopback addresses another user may listen at its port."""
_TOKEN = re.compile(rf"[!-~]{{1,{_MOST_BYTES}}}")


class _ServerRecord(background_process.ProcessRecord, frozen=True, kw_only=True):
    """The record of a running server."""

    port: int


class ServerAddress(NamedTuple):
    """The address of a server."""

    url: str
    socket: Path | None = None
    """The socket of this user's server; only this user can connect, without a token."""
    token: str | None = None

    def __str__(self) -> str:
        return str(self.socket or self.url)

    def __repr__(self) -> str:
        return f"Place({self!s})"  # the token must not get into a log


def find(url: str | None, token: str | None) -> ServerAddress:
    """Returns the address of the server.

    Args:
        url: None: this user's server on this machine.
        token: None: ``ROOST_SERVER_TOKEN``, otherwise the token of this user's own server if the URL is its.

    Raises:
        UsageError: The URL or the token is malformed.
        Refused: The token would cross a network unencrypted, or its file is readable by others.
        NotFound: There is no token.
    """
    folder = state_folder.lab_folder()
    if url is None:
        if token is not None:
            raise UsageError("a token is for a server that is reached by its URL", fix="give the url, too")
        return ServerAddress("http://roost", folder / SOCKET)
    try:
        parts = urlsplit(url)
        is_port = parts.port != 0
    except ValueError as error:
        raise invalid_url(str(error)) from None
    is_plain = not (parts.username or parts.password or parts.query or parts.fragment)
    is_typed = url.isprintable() and " " not in url and is_port
    if parts.scheme not in ("http", "https") or not parts.hostname or not is_plain or not is_typed:
        raise invalid_url()
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        fix = f"ssh -L 9999:localhost:9999 {parts.hostname}, and Client('http://localhost:9999')"
        raise Refused("the token would be sent unencrypted over the network", received=url, fix=fix)
    found = token or os.environ.get("ROOST_SERVER_TOKEN")
    is_own = parts.scheme == "http" and parts.hostname in _OWN_HOSTS
    found = found or _own_token(folder, (parts.port or _USUAL_PORT) if is_own else None)
    if not _TOKEN.fullmatch(found):  # not shown: it may be almost right
        fix = "give what `roost server token` prints, and nothing more"
        raise UsageError("is not a token of a server", setting="token", fix=fix)
    base = url.rstrip("/").removesuffix(PREFIX)  # `roost server status` shows the URL with the prefix
    return ServerAddress(base, None, found)


def invalid_url(why: str = "") -> UsageError:
    """Returns the error about a malformed URL. It does not show the URL, which may contain a password.

    Args:
        why: The reason.
    """
    what = "is not a URL of a server" + (f" ({why})" if why else "")
    return UsageError(what, setting="url", fix="write http://localhost:9999")


def _own_token(folder: Path, port: int | None) -> str:
    """Returns the token of this user's own server if it listens at this port: any other listener could use
    the token to act as this user."""
    try:
        state_folder.require_owner_and_mode(folder / TOKEN, 0o600)
        found = (
            bytes(safe_read.read(folder / TOKEN, max_bytes=_MOST_BYTES)).decode("ascii", "replace").strip()
        )
    except FileNotFoundError:
        found = ""
    own = background_process.find_running(ProcessFiles.of(folder, "server"), _ServerRecord)
    if found and own is not None and own.port == port:
        return found
    what = "there is no token for this server"
    if found:
        where = "does not run" if own is None else f"listens at port {own.port}"
        what += f": your own {where}, and another one must not see its token"
    fix = "give token=…, or set ROOST_SERVER_TOKEN to what `roost server token` prints on its machine"
    raise NotFound(what, fix=fix)
