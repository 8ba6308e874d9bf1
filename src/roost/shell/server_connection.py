"""A connection to the lab behind a server: of this user on this machine, or at a URL."""

from __future__ import annotations

import socket

from roost.api.client import Client
from roost.base.errors import NotFound
from roost.shell import server_url
from roost.shell.lab_connection import LabConnection

_CONNECT_SECONDS = 10.0


def connect(*, port: int | None = None, url: str | None = None) -> LabConnection:
    """Returns a connection to a server that answers.

    Args:
        port: A port of this machine. That of this user's own server needs no token; at another one a tunnel
            of ssh may end, and a token must be given by ``ROOST_SERVER_TOKEN``.
        url: The URL of a server. Without port and URL: this user's own server.

    Raises:
        UsageError: The URL is malformed.
        Refused: The host is another machine, or the token is wrong.
        NotFound: No server answers, or there is no token.
    """
    url = server_url.find(port=port, url=url)
    if port is not None and url is not None:
        require_listener(port)
    client = Client(url)
    try:
        client.about()
    except BaseException:
        client.close()
        raise
    place = url or "the server of this machine"
    return LabConnection(client, place=place, has_own_files=url is None)


def require_listener(port: int) -> None:
    """Raises NotFound if nothing listens at a port: without a server the lack of its token says nothing."""
    try:
        socket.create_connection(("localhost", port), timeout=_CONNECT_SECONDS).close()
    except OSError as error:
        what = f"no server answers at this port: {error.strerror or error}"
        fix = "`roost server --detach` starts yours, which needs no -p; with a tunnel, start `ssh -L` first"
        raise NotFound(what, setting="-p", received=port, fix=fix) from None
